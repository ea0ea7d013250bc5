"""Pass of a CPU: halves are computed as float32 and rounded to half where tiles store a result.

Many processors have no instructions for halves. In the graph this pass leaves, a half is a float32
whose value a half can hold: operations compute in float32, and a result is rounded where it may
have become another number. What only moves or chooses values is not rounded.

    mm(half, half) -> half    becomes    mm(float, float) -> float -> half -> float

docs/poptorch.md, "Half on the host", says what is then equal to what.
"""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from tremula.ir.graphs import StepGraph
from tremula.ir.nodes import is_random, is_view, overload_of, schema_name
from tremula.ir.step import GRADIENT, PARAMETER, CapturedStep

aten = torch.ops.aten

ROUNDS = "rounds"  # the key under which a rounding's meta holds the operation it rounds
_ON_HALVES = "on halves"  # marks a call with several results that computes halves
_HALF, _FLOAT = torch.float16, torch.float32
_TO_COPY = aten._to_copy.default
# A schema's types of arguments that may be values, not sizes or places.
_OF_VALUES = ("number", "Optional[number]", "Tensor")
_SMALLEST_NORMAL, _LARGEST = 2.0**-14, 65504.0

# Every element of a result is one of an operand, its negative, or a number of the call.
MOVES = frozenset(
    f"aten::{name}"
    for name in """
    abs amax amin as_strided_scatter bernoulli cat ceil clamp clamp_max clamp_min clone
    constant_pad_nd contiguous copy copysign cummax cummin diagonal_backward diagonal_scatter
    embedding empty empty_like expand fill flip floor fmax fmin full full_like gather hardtanh
    hardtanh_backward heaviside index index_copy index_fill index_select isin kthvalue lift
    lift_fresh masked_fill masked_scatter masked_select max max_pool2d_with_indices
    max_pool3d_with_indices maximum median min minimum mode narrow_copy neg new_empty new_full
    new_ones new_zeros nonzero ones ones_like pixel_shuffle pixel_unshuffle positive
    reflection_pad1d reflection_pad2d reflection_pad3d relu repeat replication_pad1d
    replication_pad2d replication_pad3d reshape roll rot90 scatter select_backward
    select_scatter sgn sign slice_backward slice_scatter sort stack take threshold
    threshold_backward topk tril triu trunc unfold_backward upsample_nearest1d upsample_nearest2d
    upsample_nearest3d where zeros zeros_like _unsafe_index _unsafe_view
    """.split()
) | {"tremula::dynamic_slice", "tremula::dynamic_update"}
_MIXES = frozenset({"aten::cat", "aten::stack", "aten::copy"})  # operands of several types
# A product is rounded before a bias is added, and a factor's product before the sum.
_PRODUCTS: dict[OpOverload, OpOverload] = {
    aten.addmm.default: aten.mm.default,
    aten.baddbmm.default: aten.bmm.default,
}
_SCALED_SUMS = frozenset({aten.add.Tensor, aten.sub.Tensor})
# A number of these calls is a half beside halves, as a tensor would be.
_ARITHMETIC = frozenset(f"aten::{name}" for name in "add sub rsub mul div".split())
_COMPARISONS = frozenset(f"aten::{name}" for name in "eq ne lt le gt ge".split())
# Tremula's own operations that compute with floats as they do with halves.
_COMPUTED = frozenset(
    """
    tremula::serialized_mm tremula::recurrent tremula::recurrent_backward
    tremula::strided_group_norm tremula::strided_group_norm_backward
    """.split()
)
# What these give depends on the type itself: its largest number, its neighbours, its bits.
_OF_THE_TYPE = frozenset({"aten::nan_to_num", "aten::nextafter", "aten::view"})
_DRAWN_WIDE = frozenset({"aten::bernoulli", "aten::native_dropout"})  # 0 or 1, whatever the type


def has_halves(step: CapturedStep) -> bool:
    """Whether any value of a step is half."""
    return any(_is_half(v) for node in step.graph.nodes for v in _values(node.meta.get("val")))


def widen_halves(step: CapturedStep) -> CapturedStep:
    """The step with halves computed as float32. Weights and gradients pass as float32.

    Other inputs and results are halves as they were.
    """
    return _Widener(step).run()


class _Widener:
    """Copies a graph node by node; `wide` is what replaces each node of the old one."""

    def __init__(self, step: CapturedStep):
        self.step = step
        self.graph = StepGraph()
        self.constants = dict(step.constants)
        self.wide: dict[fx.Node, fx.Node] = {}
        self.half_of: dict[fx.Node, fx.Node] = {}  # the half that a float32 node was made of

    def run(self) -> CapturedStep:
        kinds = iter(slot.kind for slot in self.step.inputs)
        for node in self.step.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, next(kinds))
            elif node.op == "get_attr":
                self._constant(node)
            elif node.op == "output":
                self._output(node)
            else:
                self._call(node)
        return self.step.with_graph(self.graph, constants=self.constants)

    # -- what comes in and goes out

    def _placeholder(self, node: fx.Node, kind: str) -> None:
        copy = self.graph.node_copy(node)
        if not _is_half(node.meta["val"]):
            self.wide[node] = copy
        elif kind == PARAMETER:
            copy.meta["val"] = _widened(node.meta["val"])
            self.wide[node] = copy
        else:
            self.wide[node] = self._widen(copy)

    def _constant(self, node: fx.Node) -> None:
        copy = self.wide[node] = self.graph.node_copy(node)
        name = str(node.target)
        if name in self.constants and self.constants[name].dtype is _HALF:
            self.constants[name] = self.constants[name].float()
        copy.meta["val"] = _widened(node.meta["val"])

    def _output(self, node: fx.Node) -> None:
        results = self.step.results()
        converted = [
            self.wide[result] if slot.kind == GRADIENT else self._as_it_was(result)
            for slot, result in zip(self.step.outputs, results, strict=True)
        ]
        self.graph.output(converted).meta.update(node.meta)

    # -- calls

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            self._item(node)
        elif not _touches_halves(node):
            self.wide[node] = self.graph.node_copy(node, self.wide.__getitem__)
        elif _has_complex_halves(node):
            self._call_on_halves(node)
        elif node.target is _TO_COPY:
            self._convert(node)
        elif _needs_the_type(node):
            self._call_on_halves(node)
        elif not self._call_in_steps(node):
            self._call_on_floats(node)

    def _item(self, node: fx.Node) -> None:
        """One of several results. Tapes, which are empty, pass as they are."""
        source = node.args[0]
        assert isinstance(source, fx.Node), "an item of a call"
        copy = self.graph.node_copy(node, self.wide.__getitem__)
        value, operation = node.meta["val"], copy.args[0]
        assert isinstance(operation, fx.Node), "a node for a node"
        if not _is_half(value):
            self.wide[node] = copy
        elif operation.meta.get(_ON_HALVES):
            self.wide[node] = self._widen(copy) if value.numel() else copy
        else:
            copy.meta["val"] = _widened(value)
            is_exact = _only_moves_halves(source) or not value.numel()
            self.wide[node] = copy if is_exact else self._round(copy, source)

    def _convert(self, node: fx.Node) -> None:
        operand = node.args[0]
        assert isinstance(operand, fx.Node), "a tensor to convert"
        was, becomes = operand.meta["val"].dtype, node.meta["val"].dtype
        is_plain = {k for k, v in node.kwargs.items() if v is not None} <= {"dtype", "device"}
        if was is _HALF and becomes is _FLOAT and is_plain:
            self.wide[node] = self.wide[operand]
        elif was is not _HALF:  # the conversion is the rounding
            copy = self.graph.node_copy(node, self.wide.__getitem__)
            copy.meta[ROUNDS] = node.target
            self.wide[node] = self._widen(copy)
        else:
            self._call_on_floats(node)

    def _call_on_halves(self, node: fx.Node) -> None:
        """The call as it was, between conversions."""
        copy = self.graph.node_copy(node, self._as_it_was)
        if isinstance(node.meta.get("val"), Tensor):
            self.wide[node] = self._widen(copy) if _is_half(node.meta["val"]) else copy
        else:
            copy.meta[_ON_HALVES] = True
            self.wide[node] = copy

    def _call_on_floats(self, node: fx.Node) -> None:
        copy = self.graph.node_copy(node, self.wide.__getitem__)
        with self.graph.inserting_before(copy):
            copy.args, copy.kwargs = self._float_arguments(node, copy)
        value = node.meta.get("val")
        copy.meta["val"] = _widened(value)
        is_exact = not _is_half(value) or _only_moves_halves(node) or node.target is _TO_COPY
        self.wide[node] = copy if is_exact else self._round(copy, node)

    # -- operations whose parts tiles round one by one

    def _call_in_steps(self, node: fx.Node) -> bool:
        """Emit a call part by part; False for a call that is rounded once."""
        if not _is_half(node.meta.get("val")):
            return False
        if node.target in _PRODUCTS:
            self.wide[node] = self._product_and_bias(node)
        elif node.target is aten.convolution.default and node.args[2] is not None:
            self.wide[node] = self._convolution_and_bias(node)
        elif node.target in _SCALED_SUMS and _scale(node, "alpha") != 1:
            first, second = self._wide_arguments(node)
            if not isinstance(second, fx.Node):
                return False
            scaled = self._scaled(node, second, _scale(node, "alpha"))
            self.wide[node] = self._step(node, overload_of(node), (first, scaled))
        else:
            return False
        return True

    def _product_and_bias(self, node: fx.Node) -> fx.Node:
        bias, *factors = self._wide_arguments(node)
        made = self._step(node, _PRODUCTS[overload_of(node)], tuple(factors))
        beta, alpha = (_scale(node, name) for name in ("beta", "alpha"))
        if alpha != 1:
            made = self._scaled(node, made, alpha)
        if beta == 0:
            return made
        if beta != 1:
            bias = self._scaled(node, bias, beta)
        return self._step(node, aten.add.Tensor, (made, bias))

    def _convolution_and_bias(self, node: fx.Node) -> fx.Node:
        x, weight, bias, *how = self._wide_arguments(node)
        made = self._step(node, overload_of(node), (x, weight, None, *how))
        n_dims = node.meta["val"].dim() - 2
        sizes = [bias.meta["val"].shape[0], *[1] * n_dims]
        column = self._made(node, aten.view.default, (bias, sizes), bias.meta["val"].view(sizes))
        return self._step(node, aten.add.Tensor, (made, column))

    def _wide_arguments(self, node: fx.Node) -> tuple[Any, ...]:
        return fx.map_arg(node.args, self.wide.__getitem__)

    def _scaled(self, node: fx.Node, wide: fx.Node, factor: float) -> fx.Node:
        args = (wide, _number("aten::mul", factor))
        value = wide.meta["val"]
        return self._round(self._made(node, aten.mul.Tensor, args, value), node)

    def _step(self, node: fx.Node, target: OpOverload, args: tuple) -> fx.Node:
        """A part with the shape of the whole call, rounded."""
        made = self._made(node, target, args, _widened(node.meta["val"]))
        return self._round(made, node)

    def _made(self, node: fx.Node, target: OpOverload, args: tuple, value: Tensor) -> fx.Node:
        made = self.graph.call_function(target, args)
        made.meta.update(node.meta)
        made.meta["val"] = value
        return made

    def _float_arguments(self, node: fx.Node, copy: fx.Node) -> tuple[tuple, dict]:
        """Types named half are float; numbers and integers become halves where they did before."""
        schema = node.target._schema if isinstance(node.target, OpOverload) else None
        named = {a.name: a for a in schema.arguments} if schema else {}
        names = list(named)
        promotes = _promotes_to_half(node)

        def changed(name: str, old: object, new: object) -> Any:  # noqa: ANN401 - any argument
            if new is _HALF:
                return _FLOAT
            if name == "half_to_float":
                return False
            if isinstance(old, bool) or not isinstance(old, int | float):
                return self._rounded_integers(old, new) if promotes else new
            is_scalar = name in named and str(named[name].type) in _OF_VALUES
            return _number(schema_name(node), old) if is_scalar else new

        args = tuple(
            changed(names[i] if i < len(names) else "", old, new)
            for i, (old, new) in enumerate(zip(node.args, copy.args, strict=True))
        )
        kwargs = {k: changed(k, node.kwargs[k], new) for k, new in copy.kwargs.items()}
        return args, kwargs

    def _rounded_integers(self, old: Any, new: Any) -> Any:  # noqa: ANN401 - any argument
        """An integer tensor that is converted to half before it is computed with."""
        value = old.meta.get("val") if isinstance(old, fx.Node) else None
        if not isinstance(value, Tensor) or value.is_floating_point() or value.dtype is torch.bool:
            return new
        return self._round(new, old)

    # -- conversions

    def _round(self, wide: fx.Node, of: fx.Node) -> fx.Node:
        """A float32 node rounded to half."""
        half = self._converted(wide, _HALF)
        half.meta[ROUNDS] = of.target
        return self._widen(half)

    def _widen(self, half: fx.Node) -> fx.Node:
        wide = self._converted(half, _FLOAT)
        self.half_of[wide] = half
        return wide

    def _as_it_was(self, node: fx.Node) -> fx.Node:
        """A node of the old graph in its own type."""
        wide = self.wide[node]
        if not _is_half(node.meta.get("val")):
            return wide
        if wide not in self.half_of:
            self.half_of[wide] = self._converted(wide, _HALF)
        return self.half_of[wide]

    def _converted(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        made = self.graph.call_function(_TO_COPY, (node,), {"dtype": dtype})
        made.meta.update({k: v for k, v in node.meta.items() if k not in (ROUNDS, _ON_HALVES)})
        made.meta["val"] = _of_type(node.meta["val"], dtype)
        return made


def _scale(node: fx.Node, name: str) -> float:
    """The factor of a sum, `alpha` or `beta`; 1 if not given."""
    scale = node.kwargs.get(name, 1)
    assert isinstance(scale, int | float), f"{name} of {node.name} is {scale}, not a number"
    return scale


def _number(name: str, value: float) -> float:
    """A number beside halves. With one that no half can hold, tiles compute in float."""
    is_arithmetic = name in _ARITHMETIC or name in _COMPARISONS
    if is_arithmetic and value and not _SMALLEST_NORMAL <= abs(value) <= _LARGEST:
        return value
    if not is_arithmetic and name not in MOVES:
        return value
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def _promotes_to_half(node: fx.Node) -> bool:
    """Whether PyTorch converts the operands of an element-wise call to half."""
    if not isinstance(node.target, OpOverload) or torch.Tag.pointwise not in node.target.tags:
        return False
    return _only_halves_are_floats(node)


def _only_halves_are_floats(node: fx.Node) -> bool:
    """Of a call's floating-point operands; one of another type may be any number."""
    floats = [v for v in _operand_values(node) if v.is_floating_point()]
    return bool(floats) and all(v.dtype is _HALF for v in floats)


def _only_moves_halves(node: fx.Node) -> bool:
    """Whether every half among a call's results is one of its arguments."""
    if is_view(node.target):
        return True
    if schema_name(node) not in MOVES or not (node.all_input_nodes or _names_half(node)):
        return False
    if schema_name(node) in _MIXES:
        return all(v.dtype is _HALF for v in _operand_values(node))
    return not node.all_input_nodes or _only_halves_are_floats(node)


def _needs_the_type(node: fx.Node) -> bool:
    name = schema_name(node)
    if name == "aten::view":
        return node.target is aten.view.dtype
    if name in _OF_THE_TYPE:
        return True
    if not name.startswith("aten::"):
        return name not in _COMPUTED and name not in MOVES
    if not node.all_input_nodes:  # made of nothing
        return name not in MOVES or not _names_half(node)
    is_drawn_wide = name in _DRAWN_WIDE or name in MOVES or "scaled_dot_product" in name
    return is_random(node) and not is_drawn_wide


def _names_half(node: fx.Node) -> bool:
    return any(value is _HALF for value in (*node.args, *node.kwargs.values()))


def _operand_values(node: fx.Node) -> list[Tensor]:
    values = [v for n in node.all_input_nodes for v in _values(n.meta.get("val"))]
    return [v for v in values if isinstance(v, Tensor)]


def _touches_halves(node: fx.Node) -> bool:
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    return any(_is_half(v) for value in values for v in _values(value))


def _has_complex_halves(node: fx.Node) -> bool:
    """Complex numbers of two halves stay what they are."""
    values = [*_values(node.meta.get("val")), *_operand_values(node)]
    return any(isinstance(v, Tensor) and v.dtype is torch.complex32 for v in values)


def _is_half(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype is _HALF


def _of_type(value: Tensor, dtype: torch.dtype) -> Tensor:
    """A fake tensor in another type; PyTorch makes none of a tensor that is zero throughout."""
    if not value._is_zerotensor():
        return value.to(dtype)
    with value.fake_mode:  # pyright: ignore[reportAttributeAccessIssue]
        return torch.zeros(value.shape, dtype=dtype, device=value.device)


def _values(value: object) -> Sequence[object]:
    return value if isinstance(value, tuple | list) else (value,)


def _widened(value: Any) -> Any:  # noqa: ANN401 - a fake tensor, or several
    if isinstance(value, tuple | list):
        return type(value)(_widened(v) for v in value)
    return value.to(_FLOAT) if _is_half(value) else value
