"""Halves on a CPU: rounding, float32 copies of weights, and the pass that makes roundings native.

A half is a float32 here whose value a half can hold (passes/half_as_float.py). Its roundings are
pairs of conversions, which Inductor fuses into its kernels; without Inductor they are the functions
of this file.
"""

import math
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from types import ModuleType

import torch
from torch import Tensor, fx

from tremula.base.processes import SharedThreads
from tremula.ir.host.passes.in_place import makes_a_new_tensor
from tremula.ir.host.passes.memory_format import is_dense
from tremula.ir.nodes import operand
from tremula.ir.passes.half_as_float import ROUNDS
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_HALF, _FLOAT = torch.float16, torch.float32


# -- conversions -----------------------------------------------------------------------------------


def round_(x: Tensor) -> Tensor:
    """Round float32 values in place to what halves can hold."""
    if not is_dense(x):
        return x.copy_(x.half())
    _run(_kernels().round_floats, x.numel(), (x.data_ptr(), 4))
    return x


def rounded(x: Tensor) -> Tensor:
    """Float32 values rounded to what halves can hold, in a new tensor."""
    return widened(narrowed(x))


def narrowed(x: Tensor) -> Tensor:
    """Halves of float32 values."""
    return store(torch.empty_like(x, dtype=_HALF), x)


def widened(x: Tensor) -> Tensor:
    """Float32 values of halves."""
    return store(torch.empty_like(x, dtype=_FLOAT), x)


def store(target: Tensor, source: Tensor) -> Tensor:
    """Copy between half and float32."""
    if source.stride() != target.stride() or not is_dense(source):
        return target.copy_(source)
    kernels = _kernels()
    convert = kernels.narrow_floats if target.dtype is _HALF else kernels.widen_halves
    arrays = ((t.data_ptr(), t.element_size()) for t in (source, target))
    _run(convert, source.numel(), *arrays)
    return target


def add_bias_(x: Tensor, bias: Tensor) -> Tensor:
    """Round products [rows, biases, …] in place, add biases, round again: as tiles do."""
    if not (x.is_contiguous() and bias.is_contiguous()):
        return _add_bias_strided(x, bias)
    n_rows, n_biases = x.shape[:2]
    n_each = x.numel() // max(1, n_rows * n_biases)
    n_bytes = 4 * n_biases * n_each
    arrays = ((x.data_ptr(), n_bytes), (bias.data_ptr(), 0))
    _run(_kernels().add_biases, n_rows, *arrays, sizes=(n_biases, n_each))
    return x


def _add_bias_strided(x: Tensor, bias: Tensor) -> Tensor:
    return round_(round_(x).add_(bias.reshape(-1, *[1] * (x.dim() - 2))))


# -- kernels ---------------------------------------------------------------------------------------

_N_ALONE = 1 << 18  # elements: one thread converts fewer before another has started


@cache
def _kernels() -> ModuleType:
    from tremula.ir.host.passes import half_kernels

    return half_kernels


# Threads besides the caller's; kernels run without Python's lock.
_threads = SharedThreads("halves", os.cpu_count() or 1)


def _run(
    kernel: Callable[..., None], n: int, *arrays: tuple[int, int], sizes: tuple[int, ...] = ()
) -> None:
    """Call a kernel on `n` rows of arrays (address, bytes of a row), in parts if there are many."""
    n_elements = n * math.prod(sizes)
    n_parts = min(torch.get_num_threads(), n_elements // _N_ALONE, n)
    if n_parts < 2:
        kernel(*(address for address, _ in arrays), n, *sizes)
        return
    bounds = [n * part // n_parts for part in range(n_parts + 1)]
    calls = [
        (*(address + begin * n_bytes for address, n_bytes in arrays), end - begin, *sizes)
        for begin, end in pairwise(bounds)
    ]
    _threads.run_all([partial(kernel, *call) for call in calls])


# -- weights ---------------------------------------------------------------------------------------


class WideCopies:
    """float32 copies of half tensors, made again when a half has changed since."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Tensor, int, Tensor]] = {}  # the half, its version, its copy

    def of(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """A copy for each half; other tensors are themselves."""
        return [self._copy(t) if t.dtype is _HALF else t for t in tensors]

    def store(self, tensors: Sequence[Tensor], copies: Sequence[Tensor]) -> None:
        """Round copies that were written, into their halves too."""
        for tensor, copy in zip(tensors, copies, strict=True):
            if tensor.dtype is _HALF:
                store(tensor, copy)
                store(copy, tensor)

    def _copy(self, half: Tensor) -> Tensor:
        """A copy, updated if the half has been written since."""
        made = self._made.get(id(half))
        now = -1 if half.is_inference() else half._version  # inference tensors count no versions
        if made is None or made[0] is not half:
            made = (half, now, widened(half))
        elif made[1] != now or now < 0:
            made = (half, now, store(made[2], half))
        self._made[id(half)] = made
        return made[2]


# -- the pass --------------------------------------------------------------------------------------


def convert_natively(step: CapturedStep) -> CapturedStep:
    """Conversions between half and float32 by this file's functions; roundings happen in place."""
    graph = step.graph
    for node in graph.nodes:
        if not _converts(node, _FLOAT, _HALF):
            continue
        back = next(iter(node.users), None)
        if len(node.users) == 1 and back and _converts(back, _HALF, _FLOAT):
            source = operand(node)
            function = round_ if _may_be_overwritten(source, node) else rounded
            made = _replace(graph, back, function, (source,))
            made.meta[ROUNDS] = node.meta[ROUNDS]
            graph.erase_node(node)
        else:
            _replace(graph, node, narrowed, node.args)
    for node in graph.nodes:
        if _converts(node, _HALF, _FLOAT):
            _replace(graph, node, widened, node.args)
        elif node.target is round_:
            _add_bias_at_once(graph, node)
    return step


def _converts(node: fx.Node, of: torch.dtype, to: torch.dtype) -> bool:
    if node.target is not aten._to_copy.default or not set(node.kwargs) <= {"dtype", "device"}:
        return False
    return operand(node).meta["val"].dtype is of and node.meta["val"].dtype is to


def _may_be_overwritten(source: fx.Node, rounding: fx.Node) -> bool:
    """A value that an operation just made for this rounding; not one the model converts."""
    is_own = rounding.meta.get(ROUNDS, aten._to_copy.default) is not aten._to_copy.default
    return is_own and len(source.users) == 1 and makes_a_new_tensor(source)


def _add_bias_at_once(graph: fx.Graph, node: fx.Node) -> None:
    """round(round(product) + bias) in one pass over memory."""
    total = operand(node)
    if total.target is not aten.add.Tensor or total.kwargs or len(total.users) != 1:
        return
    first, column = total.args
    if not isinstance(first, fx.Node) or not isinstance(column, fx.Node):
        return
    bias = operand(column) if column.target is aten.view.default else column
    is_rounded = first.target is round_ and len(first.users) == 1
    if is_rounded and _is_bias(bias.meta["val"], column.meta["val"], first.meta["val"]):
        _replace(graph, node, add_bias_, (first.args[0], bias))
        graph.erase_node(total)
        graph.erase_node(first)


def _is_bias(bias: Tensor, column: Tensor, product: Tensor) -> bool:
    """One number for each row of dimension 1, as a column that broadcasts over the others."""
    rest = (1,) * (product.dim() - 2)
    return (
        product.dim() > 1
        and bias.shape == product.shape[1:2]
        and tuple(column.shape) == (*bias.shape, *rest)
    )


def _replace(graph: fx.Graph, node: fx.Node, function: Callable, args: tuple) -> fx.Node:
    with graph.inserting_before(node):
        made = graph.call_function(function, args)
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    return made
