"""ATen's element-wise operations as expressions on tiles, in Triton and in Gluon.

An expression is a template: `{0}`, `{1}` … are its operands in the order of the schema, and `{d}`
is the dialect that it is printed in, which names functions and types.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx
from torch._ops import OpOverload

from tremula.ir.nodes import HALF_TYPES, operand, overload_of

aten = torch.ops.aten

ELEMENT_TYPES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "int1",
}


class MissingFunctionError(Exception):
    """A dialect has no function that an expression calls."""


@dataclass(frozen=True)
class Dialect:
    """How a language spells what kernels are made of."""

    module: str  # whose `jit` makes functions
    lib: str  # the module of most functions
    exp: str
    sigmoid: str
    has_libdevice: bool

    @property
    def libdevice(self) -> str:
        """The module of CUDA's mathematical functions."""
        if not self.has_libdevice:
            raise MissingFunctionError(f"{self.lib} does not call libdevice")
        return "libdevice"

    def type_name(self, dtype: torch.dtype) -> str:
        return f"{self.lib}.{ELEMENT_TYPES[dtype]}"

    def as_float(self, node: fx.Node) -> str:
        """What follows a load, so that halves are computed in float32."""
        return f".to({self.lib}.float32)" if node.meta["val"].dtype in HALF_TYPES else ""


TRITON = Dialect("triton", "tl", exp="tl.exp", sigmoid="tl.sigmoid", has_libdevice=True)
# `_exp` and `_sigmoid` are functions of the header: Gluon has none, or slower ones.
GLUON = Dialect("gluon", "gl", exp="_exp", sigmoid="_sigmoid", has_libdevice=False)


@dataclass(frozen=True)
class Expression:
    """One operation: its text, and which zero operands make its result zero."""

    write: Callable[..., str]  # operands as texts, by position and name, and `d` -> the result
    zero_from: tuple[int, ...] = ()  # zero where one of these is, if the others are finite


def _of(template: str, zero_from: tuple[int, ...] = ()) -> Expression:
    return Expression(template.format, zero_from)


def number(value: object) -> str:
    """A number of the graph as a literal."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _scaled(sign: str) -> Expression:
    def write(a: str, b: str, alpha: str = "1", *, d: Dialect) -> str:  # noqa: ARG001
        return f"({a} {sign} {b})" if alpha == "1" else f"({a} {sign} {b} * {alpha})"

    return Expression(write)


def _reversed_difference(a: str, b: str, alpha: str = "1", *, d: Dialect) -> str:
    return _scaled("-").write(b, a, alpha, d=d)


def _leaky_relu(x: str, slope: str = "0.01", *, d: Dialect) -> str:
    return f"{d.lib}.where({x} > 0, {x}, {x} * {slope})"


def _softplus(x: str, beta: str = "1", threshold: str = "20", *, d: Dialect) -> str:
    """Above a threshold of 20 the result rounds to x; models may choose a lower one."""
    if beta == "1" and threshold == "20":
        return f"_softplus({x})"
    return f"{d.lib}.where({x} * {beta} > {threshold}, {x}, _softplus({x} * {beta}) / {beta})"


def softplus_function(d: Dialect) -> str:
    """The definition of the function that `_softplus` calls, for the beginning of a kernel."""
    return f'''@{d.module}.jit
def _softplus(x):
    """log(1 + exp(x)) without branches: a polynomial for log1p on [0, 1], to 2e-7."""
    t = {d.exp}(-{d.lib}.abs(x))
    p = 0.00510582579 * t - 0.0289919564
    p = p * t + 0.0773807383
    p = p * t - 0.135906002
    p = p * t + 0.190713096
    p = p * t - 0.248339455
    p = p * t + 0.333179343
    p = p * t - 0.499994357
    p = p * t + 0.999999965
    return {d.lib}.maximum(x, 0.0) + p * t
'''


def _softplus_backward(g: str, x: str, beta: str, threshold: str, *, d: Dialect) -> str:
    if beta == "1" and threshold == "20":
        return f"({g} * {d.sigmoid}({x}))"
    return f"{d.lib}.where({x} * {beta} > {threshold}, {g}, {g} * {d.sigmoid}({x} * {beta}))"


def _elu(x: str, alpha: str = "1", scale: str = "1", input_scale: str = "1", *, d: Dialect) -> str:
    below = f"{d.libdevice}.expm1({x} * {input_scale}) * ({alpha} * {scale})"
    return f"{d.lib}.where({x} > 0, {x} * {scale}, {below})"


def _elu_backward(
    g: str, alpha: str, scale: str, input_scale: str, is_result: str, x: str, *, d: Dialect
) -> str:
    inner = f"{alpha} * {scale}"
    if is_result == "True":
        below = f"{g} * {input_scale} * ({x} + {inner})"
    else:
        below = f"{g} * {input_scale} * {inner} * {d.exp}({x} * {input_scale})"
    return f"{d.lib}.where({x} > 0, {g} * {scale}, {below})"


def _power(x: str, exponent: str, *, d: Dialect) -> str:
    root = f"{d.lib}.sqrt({x})"
    simple = {"2": f"({x} * {x})", "3": f"({x} * {x} * {x})", "1": x, "0.5": root}
    simple |= {"-1": f"(1.0 / {x})", "-0.5": f"(1.0 / {root})"}
    text = simple.get(exponent.removesuffix(".0"))
    return text if text is not None else f"{d.libdevice}.pow({x}, {exponent})"


def _clamp(x: str, low: str = "None", high: str = "None", *, d: Dialect) -> str:
    if low != "None":
        x = f"{d.lib}.where({x} < {low}, {low}, {x})"  # a NaN stays
    return x if high == "None" else f"{d.lib}.where({x} > {high}, {high}, {x})"


_NAN_STAYS = "propagate_nan=tl.PropagateNan.ALL"  # Gluon has no such name: `tl` is Triton's in both

# Kernels compute floats in float32, whatever type they are stored as.
ELEMENT_WISE: dict[OpOverload, Expression] = {
    aten.add.Tensor: _scaled("+"),
    aten.sub.Tensor: _scaled("-"),
    aten.rsub.Scalar: Expression(_reversed_difference),
    aten.mul.Tensor: _of("({0} * {1})", zero_from=(0, 1)),
    aten.div.Tensor: _of("({0} / {1})"),
    aten.add.Scalar: _scaled("+"),
    aten.sub.Scalar: _scaled("-"),
    aten.mul.Scalar: _of("({0} * {1})", zero_from=(0,)),
    aten.div.Scalar: _of("({0} / {1})", zero_from=(0,)),
    aten.neg.default: _of("(-{0})", zero_from=(0,)),
    aten.reciprocal.default: _of("(1.0 / {0})"),
    aten.abs.default: _of("{d.lib}.abs({0})"),
    aten.exp.default: _of("{d.exp}({0})"),
    aten.log.default: _of("{d.lib}.log({0})"),
    aten.log1p.default: _of("{d.libdevice}.log1p({0})"),
    aten.expm1.default: _of("{d.libdevice}.expm1({0})"),
    aten.sqrt.default: _of("{d.lib}.sqrt({0})"),
    aten.rsqrt.default: _of("(1.0 / {d.lib}.sqrt({0}))"),
    aten.sin.default: _of("{d.lib}.sin({0})"),
    aten.cos.default: _of("{d.lib}.cos({0})"),
    aten.tanh.default: _of("{d.libdevice}.tanh({0})"),
    aten.sigmoid.default: _of("{d.sigmoid}({0})"),
    aten.relu.default: _of("{d.lib}.where({0} < 0, 0.0, {0})"),
    aten.leaky_relu.default: Expression(_leaky_relu),
    aten.silu.default: _of("({0} * {d.sigmoid}({0}))"),
    aten.elu.default: Expression(_elu),
    aten.softplus.default: Expression(_softplus),
    aten.pow.Tensor_Scalar: Expression(_power),
    aten.maximum.default: _of(f"{{d.lib}}.maximum({{0}}, {{1}}, {_NAN_STAYS})"),
    aten.minimum.default: _of(f"{{d.lib}}.minimum({{0}}, {{1}}, {_NAN_STAYS})"),
    aten.clamp.default: Expression(_clamp),
    aten.clamp_min.default: Expression(_clamp),
    aten.where.self: _of("{d.lib}.where({0}, {1}, {2})"),
    aten.masked_fill.Scalar: _of("{d.lib}.where({1}, {2}, {0})"),
    aten.clone.default: _of("{0}"),
    aten._to_copy.default: _of("{0}"),
    # gradients: the gradient of the result comes first
    aten.threshold_backward.default: _of("{d.lib}.where({1} > {2}, {0}, 0.0)", zero_from=(0,)),
    aten.softplus_backward.default: Expression(_softplus_backward, zero_from=(0,)),
    aten.sigmoid_backward.default: _of("({0} * {1} * (1.0 - {1}))", zero_from=(0,)),
    aten.tanh_backward.default: _of("({0} * (1.0 - {1} * {1}))", zero_from=(0,)),
    aten.silu_backward.default: _of(
        "({0} * {d.sigmoid}({1}) * (1.0 + {1} * (1.0 - {d.sigmoid}({1}))))", zero_from=(0,)
    ),
    aten.leaky_relu_backward.default: _of("{d.lib}.where({1} > 0, {0}, {0} * {2})", zero_from=(0,)),
    aten.elu_backward.default: Expression(_elu_backward),
}
for _name, _sign in (
    ("eq", "=="),
    ("ne", "!="),
    ("lt", "<"),
    ("le", "<="),
    ("gt", ">"),
    ("ge", ">="),
):
    for _overload in ("Tensor", "Scalar"):
        ELEMENT_WISE[getattr(getattr(aten, _name), _overload)] = _of(f"({{0}} {_sign} {{1}})")
for _name, _sign in (("logical_and", "&"), ("logical_or", "|")):
    ELEMENT_WISE[getattr(aten, _name).default] = _of(f"({{0}} {_sign} {{1}})")
ELEMENT_WISE[aten.logical_not.default] = _of("({0} == 0)")

_CONDITIONS = {aten.where.self: (0,), aten.masked_fill.Scalar: (1,)}  # operands that are booleans


def element_wise_text(node: fx.Node, dialect: Dialect, tile_of: Callable[[fx.Node], str]) -> str:
    """The expression of a node; `tile_of` names an operand, aligned with the result."""
    is_float = node.meta["val"].is_floating_point()
    conditions = _CONDITIONS.get(overload_of(node), ())

    def text(index: int, argument: object) -> str:
        if not isinstance(argument, fx.Node):
            return number(argument)
        name = tile_of(argument)
        must_convert = is_float and not argument.meta["val"].is_floating_point()
        return (
            f"{name}.to({dialect.lib}.float32)"
            if must_convert and index not in conditions
            else name
        )

    if node.target is aten._to_copy.default:
        return _converted(node, text(1, node.args[0]), dialect)
    operands = [text(index, argument) for index, argument in enumerate(node.args)]
    named = {name: text(-1, a) for name, a in node.kwargs.items() if name != "memory_format"}
    return ELEMENT_WISE[overload_of(node)].write(*operands, **named, d=dialect)


def _converted(node: fx.Node, name: str, dialect: Dialect) -> str:
    source, result = (n.meta["val"].dtype for n in (operand(node), node))
    if result.is_floating_point:
        return name
    if result is torch.bool:
        return f"({name} != 0)"
    return f"{name}.to({dialect.type_name(result)})" if source != result else name
