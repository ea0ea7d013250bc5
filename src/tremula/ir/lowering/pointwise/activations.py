"""Lowerings of activation functions and their gradients: one formula each, one vertex per tile."""

from tremula.base.types import FLOAT, Type
from tremula.ir.lowering.pointwise.map import Formula, Operand, mapped
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popnn
from tremula.poplibs.popops.elementwise import expr
from tremula.poplibs.popops.elementwise.expr import Expr


def _in_float(tiles: Tiles, formula: Formula, *values: Operand) -> Tensor:
    """Several steps: halves are computed as floats and rounded once, as PyTorch does."""
    return mapped(tiles, formula, *values, type=FLOAT)


# -- popnn's: one codelet each, with the slots that PopLibs publishes for it -----------------------


def _popnn(tiles: Tiles, kind: str, x: Tensor) -> Tensor:
    return popnn.non_linearity(tiles.graph, x, tiles.sequence, tiles.name, kind=kind)


def _popnn_gradient(tiles: Tiles, kind: str, g: Tensor, data: Tensor) -> Tensor:
    """`data` is the input of GELU and SWISH, the output of others."""
    g = tiles.cast(g, data.type)
    return popnn.non_linearity_input_gradient(
        tiles.graph, data, g, tiles.sequence, tiles.name, kind=kind
    )


def _gelu_kind(approximate: str) -> str:
    return "GELU_ERF" if approximate == "none" else "GELU"


@lowers("gelu", calls="popnn.non_linearity")
def gelu(tiles: Tiles, x: Tensor, *, approximate: str = "none") -> Tensor:
    return _popnn(tiles, _gelu_kind(approximate), x)


@lowers("gelu_backward", calls="popnn.non_linearity_input_gradient")
def gelu_backward(tiles: Tiles, g: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    return _popnn_gradient(tiles, _gelu_kind(approximate), g, x)


@lowers("silu", calls="popnn.non_linearity")
def silu(tiles: Tiles, x: Tensor) -> Tensor:
    return _popnn(tiles, "SWISH", x)


@lowers("silu_backward", calls="popnn.non_linearity_input_gradient")
def silu_backward(tiles: Tiles, g: Tensor, x: Tensor) -> Tensor:
    return _popnn_gradient(tiles, "SWISH", g, x)


@lowers("sigmoid_backward", calls="popnn.non_linearity_input_gradient")
def sigmoid_backward(tiles: Tiles, g: Tensor, y: Tensor) -> Tensor:
    return _popnn_gradient(tiles, "SIGMOID", g, y)


@lowers("tanh_backward", calls="popnn.non_linearity_input_gradient")
def tanh_backward(tiles: Tiles, g: Tensor, y: Tensor) -> Tensor:
    return _popnn_gradient(tiles, "TANH", g, y)


# -- functions without parameters ------------------------------------------------------------------


def _softplus_of(x: Expr) -> Expr:
    """log(1 + e^x), without overflow."""
    return expr.maximum(x, 0.0) + expr.log1p(expr.exp(-abs(x)))


def _mish_gradient(g: Expr, x: Expr) -> Expr:
    t = expr.tanh(_softplus_of(x))
    return g * (t + x * expr.sigmoid(x) * (1 - t * t))


def _gate(x: Expr) -> Expr:
    return expr.clamp(x + 3, 0.0, 6.0)


def _hardswish_gradient(g: Expr, x: Expr) -> Expr:
    inside = expr.select(g * (x / 3 + 0.5), g, x < 3)
    return expr.select(g * 0.0, inside, x <= -3)


_FUNCTIONS: dict[str, Formula] = {
    "mish": lambda x: x * expr.tanh(_softplus_of(x)),
    "mish_backward": _mish_gradient,
    "hardsigmoid": lambda x: _gate(x) / 6,
    "hardsigmoid_backward": lambda g, x: expr.select(g / 6, g * 0.0, (x > -3) & (x < 3)),
    "hardswish": lambda x: x * _gate(x) / 6,
    "hardswish_backward": _hardswish_gradient,
    "relu6": lambda x: expr.clamp(x, 0.0, 6.0),
}


def _enter(name: str, formula: Formula) -> None:
    @lowers(name, calls="popops.map")
    def activation(tiles: Tiles, *tensors: Tensor) -> Tensor:
        return _in_float(tiles, formula, *tensors)


for _name, _formula in _FUNCTIONS.items():
    _enter(_name, _formula)


# -- functions with parameters ---------------------------------------------------------------------


@lowers("leaky_relu", calls="popops.map")
def leaky_relu(tiles: Tiles, x: Tensor, slope: float = 0.01) -> Tensor:
    return mapped(tiles, lambda x, s: expr.select(x, x * s, x > 0), x, slope, type=x.type)


@lowers("leaky_relu_backward", calls="popops.map")
def leaky_relu_backward(
    tiles: Tiles, g: Tensor, x: Tensor, slope: float, _is_result: bool
) -> Tensor:
    """The operand and the result have the same sign, so either works."""
    return mapped(tiles, lambda g, x, s: expr.select(g, g * s, x > 0), g, x, slope, type=x.type)


@lowers("threshold", calls="popops.map")
def threshold(tiles: Tiles, x: Tensor, limit: float, value: float) -> Tensor:
    return mapped(tiles, lambda x, t, v: expr.select(v, x, x <= t), x, limit, value, type=x.type)


@lowers("threshold_backward", calls="popnn.non_linearity_input_gradient, popops.map")
def threshold_backward(tiles: Tiles, g: Tensor, x: Tensor, limit: float) -> Tensor:
    if limit == 0 and g.type is x.type is tiles.out_type:
        return _popnn_gradient(tiles, "RELU", g, x)

    def formula(g: Expr, x: Expr, limit: Expr | float = 0) -> Expr:
        return expr.select(_zero(tiles.out_type), g, x <= limit)

    further = () if limit == 0 else (limit,)
    return mapped(tiles, formula, g, x, *further, type=tiles.out_type)


def _zero(type: Type) -> Expr:
    return expr.Const(0, type)


@lowers("hardtanh_backward", calls="popops.map")
def hardtanh_backward(tiles: Tiles, g: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    def formula(g: Expr, x: Expr, low: Expr, high: Expr) -> Expr:
        return expr.select(_zero(tiles.out_type), g, (x <= low) | (x >= high))

    return mapped(tiles, formula, g, x, low, high, type=tiles.out_type)


@lowers("elu", calls="popops.map")
def elu(
    tiles: Tiles, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Tensor:
    def formula(x: Expr, negative: Expr, positive: Expr, inner: Expr) -> Expr:
        return expr.select(x * positive, expr.expm1(x * inner) * negative, x > 0)

    return _in_float(tiles, formula, x, alpha * scale, scale, input_scale)


@lowers("elu_backward", calls="popops.map")
def elu_backward(
    tiles: Tiles, g: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool,
    x: Tensor,
) -> Tensor:  # fmt: skip
    def from_x(g: Expr, x: Expr, negative: Expr, positive: Expr, inner: Expr) -> Expr:
        return expr.select(g * positive, g * inner * negative * expr.exp(x * inner), x > 0)

    def from_result(g: Expr, y: Expr, negative: Expr, positive: Expr, inner: Expr) -> Expr:
        return expr.select(g * positive, g * inner * (y + negative), y > 0)

    formula = from_result if is_result else from_x
    return _in_float(tiles, formula, g, x, alpha * scale, scale, input_scale)


@lowers("softplus", calls="popops.map")
def softplus(tiles: Tiles, x: Tensor, beta: float = 1, limit: float = 20) -> Tensor:
    def formula(x: Expr, beta: Expr, limit: Expr) -> Expr:
        return expr.select(x, _softplus_of(x * beta) / beta, x * beta > limit)

    return _in_float(tiles, formula, x, beta, limit)


@lowers("softplus_backward", calls="popops.map")
def softplus_backward(tiles: Tiles, g: Tensor, x: Tensor, beta: float, limit: float) -> Tensor:
    def formula(g: Expr, x: Expr, beta: Expr, limit: Expr) -> Expr:
        return expr.select(g, g * expr.sigmoid(x * beta), x * beta > limit)

    return _in_float(tiles, formula, g, x, beta, limit)


def _is_within(x: Expr, limit: Expr) -> Expr:
    return (x >= -limit) & (x <= limit)


@lowers("hardshrink", calls="popops.map")
def hardshrink(tiles: Tiles, x: Tensor, limit: float = 0.5) -> Tensor:
    def formula(x: Expr, limit: Expr) -> Expr:
        return expr.select(_zero(tiles.out_type), x, _is_within(x, limit))

    return mapped(tiles, formula, x, limit, type=tiles.out_type)


@lowers("softshrink", calls="popops.map")
def softshrink(tiles: Tiles, x: Tensor, limit: float = 0.5) -> Tensor:
    def formula(x: Expr, limit: Expr) -> Expr:
        outside = expr.select(x - limit, x + limit, x > limit)
        return expr.select(x * 0, outside, _is_within(x, limit) | expr.is_nan(x))

    return mapped(tiles, formula, x, limit, type=tiles.out_type)


@lowers("hardshrink_backward", "softshrink_backward", calls="popops.map")
def shrink_backward(tiles: Tiles, g: Tensor, x: Tensor, limit: float) -> Tensor:
    def formula(g: Expr, x: Expr, limit: Expr) -> Expr:
        return expr.select(_zero(tiles.out_type), g, _is_within(x, limit))

    return mapped(tiles, formula, g, x, limit, type=tiles.out_type)
