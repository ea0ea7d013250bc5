"""Floating-point exceptions on the host: an operation that makes a NaN or infinity is an error."""

import math

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from tremula.ir.errors import FloatingPointException
from tremula.ir.nodes import schema_name
from tremula.ir.origin import ORIGIN
from tremula.ir.passes.half_as_float import ROUNDS

_COMPARISONS = frozenset(
    f"aten::{name}" for name in "eq ne lt le gt ge maximum minimum max min".split()
)


class FloatChecker(fx.Interpreter):
    """Runs a graph; notes which values have NaNs and infinities, to see where they come from."""

    def __init__(self, module: fx.GraphModule):
        super().__init__(module)
        self.extra_traceback = False  # our text names operation and line
        self._has: dict[fx.Node, tuple[bool, bool]] = {}  # NaN, infinity; of this run

    def run_node(self, n: fx.Node) -> object:
        result = super().run_node(n)
        has = self._has[n] = _special(result)
        if n.op == "call_function":
            self._check(n, has)
        return result

    def _check(self, node: fx.Node, has: tuple[bool, bool]) -> None:
        operands = [self._has[source] for source in node.all_input_nodes]
        had_nan, had_infinity = (any(o[i] for o in operands) for i in (0, 1))
        if schema_name(node) in _COMPARISONS and had_nan:
            raise _exception("compares with a NaN", node)
        if not operands or _names_special_numbers(node):
            return  # a constant, or masked values: intended
        if has[0] and not had_nan:
            raise _exception("is invalid: its result is not a number", node)
        if has[1] and not had_infinity:
            raise _exception("divides by zero or overflows: its result is infinite", node)


def _special(value: object) -> tuple[bool, bool]:
    tensors = [t for t in tree_leaves(value) if isinstance(t, Tensor) and t.is_floating_point()]
    if all(bool(torch.isfinite(t).all()) for t in tensors):
        return False, False
    nan = any(bool(torch.isnan(t).any()) for t in tensors)
    return nan, any(bool(torch.isinf(t).any()) for t in tensors)


def _names_special_numbers(node: fx.Node) -> bool:
    numbers = [v for v in tree_leaves((node.args, node.kwargs)) if isinstance(v, float)]
    return any(not math.isfinite(number) for number in numbers)


def _exception(what: str, node: fx.Node) -> Exception:
    origin = node.meta.get(ORIGIN)
    place = f" in {origin.module or 'the model'}, {origin.source}" if origin is not None else ""
    target = node.meta.get(ROUNDS, node.target)  # a rounding belongs to what it rounds
    return FloatingPointException(f"Floating point exception: {target} {what}{place}")
