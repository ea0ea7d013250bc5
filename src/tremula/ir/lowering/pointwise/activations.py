"""Lowerings of activation functions and their gradients: one formula each, one vertex per tile."""

import math

from tremula.base.types import FLOAT, Type
from tremula.ir.lowering.pointwise.map import Formula, Operand, mapped
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise import expr
from tremula.poplibs.popops.elementwise.expr import Expr

_SQRT_HALF = math.sqrt(0.5)
_GELU_SLOPE = math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715


def _in_float(tiles: Tiles, formula: Formula, *values: Operand) -> Tensor:
    """Several steps: halves are computed as floats and rounded once, as PyTorch does."""
    return mapped(tiles, formula, *values, type=FLOAT)


# -- gelu ------------------------------------------------------------------------------------------


def _gelu_tanh(x: Expr) -> Expr:
    return 0.5 * x * (1 + expr.tanh(_GELU_SLOPE * (x + _GELU_CUBIC * x * x * x)))


@lowers("gelu", calls="popops.gelu_erf")
def gelu(tiles: Tiles, x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "none":
        return mapped(tiles, expr.gelu_erf, x)
    return _in_float(tiles, _gelu_tanh, x)


def _gelu_gradient(g: Expr, x: Expr) -> Expr:
    density = expr.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return g * (0.5 * (1 + expr.erf(x * _SQRT_HALF)) + x * density)


def _gelu_tanh_gradient(g: Expr, x: Expr) -> Expr:
    t = expr.tanh(_GELU_SLOPE * (x + _GELU_CUBIC * x * x * x))
    slope = _GELU_SLOPE * (1 + 3 * _GELU_CUBIC * x * x)
    return g * 0.5 * (1 + t + x * (1 - t * t) * slope)


@lowers("gelu_backward", calls="popops.map")
def gelu_backward(tiles: Tiles, g: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    formula = _gelu_gradient if approximate == "none" else _gelu_tanh_gradient
    return _in_float(tiles, formula, g, x)


# -- functions without parameters ------------------------------------------------------------------


def _sigmoid_times_gradient(g: Expr, x: Expr) -> Expr:
    s = expr.sigmoid(x)
    return g * s * (1 + x * (1 - s))


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
    "silu": lambda x: x * expr.sigmoid(x),
    "silu_backward": _sigmoid_times_gradient,
    "mish": lambda x: x * expr.tanh(_softplus_of(x)),
    "mish_backward": _mish_gradient,
    "hardsigmoid": lambda x: _gate(x) / 6,
    "hardsigmoid_backward": lambda g, x: expr.select(g / 6, g * 0.0, (x > -3) & (x < 3)),
    "hardswish": lambda x: x * _gate(x) / 6,
    "hardswish_backward": _hardswish_gradient,
    "relu6": lambda x: expr.clamp(x, 0.0, 6.0),
    "sigmoid_backward": lambda g, y: g * y * (1 - y),
    "tanh_backward": lambda g, y: g * (1 - y * y),
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


@lowers("threshold_backward", calls="popops.map")
def threshold_backward(tiles: Tiles, g: Tensor, x: Tensor, limit: float) -> Tensor:
    def formula(g: Expr, x: Expr, limit: Expr | float = 0) -> Expr:
        return expr.select(_nought(tiles.out_type), g, x <= limit)

    further = () if limit == 0 else (limit,)
    return mapped(tiles, formula, g, x, *further, type=tiles.out_type)


def _nought(type: Type) -> Expr:
    return expr.Const(0, type)


@lowers("hardtanh_backward", calls="popops.map")
def hardtanh_backward(tiles: Tiles, g: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    def formula(g: Expr, x: Expr, low: Expr, high: Expr) -> Expr:
        return expr.select(_nought(tiles.out_type), g, (x <= low) | (x >= high))

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
        return expr.select(_nought(tiles.out_type), x, _is_within(x, limit))

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
        return expr.select(_nought(tiles.out_type), g, _is_within(x, limit))

    return mapped(tiles, formula, g, x, limit, type=tiles.out_type)
