"""Arithmetic, element by element, and products of matrices."""

import math
from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from tremula.frontends.onnx.table import operator

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Neg": torch.neg,
    "Reciprocal": torch.reciprocal,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}


_IN_PLACE = ("Exp", "Neg", "Sqrt", "Tanh", "Add", "Mul")  # of this table and of _BINARY


def _enter_unary(name: str, function: Callable[[Tensor], Tensor]) -> None:
    role = "activation" if name == "Tanh" else ""

    @operator(name, in_place=name in _IN_PLACE, role=role)
    def compute(x: Tensor) -> Tensor:
        return function(x)

    compute.__doc__ = f"torch.{function.__name__} of each element."


for _name, _function in _UNARY.items():
    _enter_unary(_name, _function)


@operator("Abs", in_place=True)
def absolute(x: Tensor) -> Tensor:
    """The size of each element; unsigned numbers are theirs."""
    return x if x.dtype is torch.uint8 else torch.abs(x)


@operator("Round")
def round_(x: Tensor) -> Tensor:
    """To the nearest whole number, halves to the even one."""
    return torch.round(x)


def aligned(a: Tensor, b: Tensor, axis: int | None, broadcast: int) -> Tensor:
    """The second operand as operator sets before 7 broadcast it: its shape begins at an axis."""
    if not broadcast or axis is None:
        return b
    place = axis % a.dim() if a.dim() else 0
    return b.reshape(*b.shape, *[1] * (a.dim() - place - b.dim()))


def _divide(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point():
        return torch.div(a, b)
    return torch.div(a, b, rounding_mode="trunc")


_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": _divide,
}


def _enter_binary(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @operator(name, until=6, in_place=name in _IN_PLACE)
    def before_7(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        """The second operand is broadcast only if the node says so, from an axis on."""
        return function(a, aligned(a, b, axis, broadcast))

    @operator(name, since=7, in_place=name in _IN_PLACE)
    def compute(a: Tensor, b: Tensor) -> Tensor:
        """Of elements; shapes are broadcast."""
        return function(a, b)


for _name, _function in _BINARY.items():
    _enter_binary(_name, _function)


@operator("Pow", until=6)
def power_before_7(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
    """As Pow, with broadcasting from an axis on."""
    return power(a, aligned(a, b, axis, broadcast))


@operator("Pow", since=7)
def power(a: Tensor, b: Tensor) -> Tensor:
    """The result has the type of the base."""
    if a.is_floating_point():
        return torch.pow(a, b.to(a.dtype))
    if b.is_floating_point():
        return torch.pow(a.to(torch.float64), b.to(torch.float64)).to(a.dtype)
    return torch.pow(a, b).to(a.dtype)


@operator("Mod", since=10)
def modulo(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """The sign is that of the divisor, or with fmod that of the dividend."""
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


def _folded(function: Callable[[Tensor, Tensor], Tensor], operands: tuple[Tensor, ...]) -> Tensor:
    return reduce(function, operands)


@operator("Sum")
def total(*operands: Tensor) -> Tensor:
    """The sum of any number of tensors."""
    return _folded(torch.add, operands)


@operator("Mean")
def mean(*operands: Tensor) -> Tensor:
    """The mean of any number of tensors."""
    return _folded(torch.add, operands) / len(operands)


@operator("Max")
def maximum(*operands: Tensor) -> Tensor:
    """The largest of any number of tensors, element by element."""
    return _folded(torch.maximum, operands)


@operator("Min")
def minimum(*operands: Tensor) -> Tensor:
    """The smallest of any number of tensors, element by element."""
    return _folded(torch.minimum, operands)


@operator("Clip", until=10)
def clip_before_11(
    x: Tensor, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38
) -> Tensor:
    """Bounds are attributes."""
    return x.clamp(min, max)


@operator("Clip", since=11)
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """The upper bound counts if the lower is above it."""
    if low is not None:
        x = torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


@operator("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """NumPy's matmul."""
    return torch.matmul(a, b)


@operator("Gemm", until=6)
def gemm_before_7(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 0,  # noqa: ARG001 - shapes say it
) -> Tensor:
    """As Gemm."""
    return gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@operator("Gemm", since=7)
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """Alpha · A · B + beta · C."""
    a, b = (a.t() if transA else a), (b.t() if transB else b)
    if c is not None and alpha == beta == 1 and a.is_floating_point():
        return torch.addmm(c, a, b)
    product = a @ b
    if alpha != 1:
        product = (product * alpha).to(a.dtype)
    if c is None or not beta:
        return product
    return product + (c if beta == 1 else (c * beta).to(c.dtype))


@operator("Einsum", since=12)
def einsum(*operands: Tensor, equation: str) -> Tensor:
    """torch.einsum."""
    return torch.einsum(equation.replace(" ", ""), *operands)


@operator("Det", since=11)
def determinant(x: Tensor) -> Tensor:
    """Of the innermost matrices."""
    return torch.linalg.det(x)


@operator("CumSum", since=11, static=("axis",))
def running_sum(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """The sum up to each element, from either end, with or without the element."""
    return _running(torch.cumsum, x, int(axis), exclusive, reverse, 0)


@operator("CumProd", since=26, static=("axis",))
def running_product(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """The product up to each element, from either end, with or without the element."""
    return _running(torch.cumprod, x, int(axis), exclusive, reverse, 1)


def _running(
    function: Callable, x: Tensor, axis: int, exclusive: int, reverse: int, first: int
) -> Tensor:
    x = x.flip(axis) if reverse else x
    if exclusive:
        before = torch.full_like(x.narrow(axis, 0, 1), first)
        x = torch.cat([before, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    result = function(x, axis, dtype=x.dtype)
    return result.flip(axis) if reverse else result


@operator("Affine")
def affine(x: Tensor, *, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    """Alpha · x + beta; an experiment of the first operator sets."""
    return x * alpha + beta


@operator("Scale", in_place=True)
def scale(x: Tensor, *, scale: float = 1.0) -> Tensor:
    """X · scale; an experiment of the first operator sets."""
    return x * scale


@operator("Gelu", since=20, in_place=True, role="activation")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """With the error function, or with tanh."""
    return torch.nn.functional.gelu(x, approximate=approximate)


@operator("Selu", in_place=True)
def selu(
    x: Tensor, *, alpha: float = 1.6732632423543772848, gamma: float = 1.0507009873554804934
) -> Tensor:
    """Gamma · (x, or below zero alpha · (exp(x) - 1))."""
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


@operator("Celu", since=12)
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """torch.celu."""
    return torch.celu(x, alpha)


@operator("Elu", in_place=True, role="activation")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x, or below zero alpha · (exp(x) - 1)."""
    return torch.nn.functional.elu(x, alpha)


@operator("Relu", in_place=True, role="activation")
def relu(x: Tensor) -> Tensor:
    """x, or 0 below zero."""
    return torch.relu(x)


@operator("LeakyRelu", in_place=True, role="activation")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """x, or below zero alpha · x."""
    return torch.nn.functional.leaky_relu(x, alpha)


@operator("PRelu", until=6)
def prelu_before_7(x: Tensor, slope: Tensor) -> Tensor:
    """The slope is one number, or one for each channel."""
    if slope.numel() > 1 and slope.dim() == 1 and x.dim() > 1:
        slope = slope.reshape(-1, *[1] * (x.dim() - 2))
    return prelu(x, slope)


@operator("PRelu", since=7)
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x, or below zero slope · x."""
    return torch.where(x < 0, x * slope, x)


@operator("ThresholdedRelu", in_place=True)
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """X where it is above alpha, else 0."""
    return torch.where(x > alpha, x, torch.zeros_like(x))


@operator("Sigmoid", in_place=True, role="activation")
def sigmoid(x: Tensor) -> Tensor:
    """torch.sigmoid."""
    return torch.sigmoid(x)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """Alpha · x + beta between 0 and 1."""
    return (alpha * x + beta).clamp(0, 1)


@operator("HardSwish", since=14)
def hard_swish(x: Tensor) -> Tensor:
    """X · hard_sigmoid(x)."""
    return torch.nn.functional.hardswish(x)


@operator("Swish", since=24)
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """X · sigmoid(alpha · x)."""
    return x * torch.sigmoid(alpha * x)


@operator("Mish", since=18)
def mish(x: Tensor) -> Tensor:
    """X · tanh(softplus(x))."""
    return torch.nn.functional.mish(x)


@operator("Softplus", in_place=True)
def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return torch.nn.functional.softplus(x)


@operator("Softsign", in_place=True)
def softsign(x: Tensor) -> Tensor:
    """X / (1 + |x|)."""
    return x / (1 + x.abs())


@operator("Shrink", since=9)
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """Towards zero by bias; 0 between -lambd and lambd."""
    zero = torch.zeros_like(x)
    result = torch.where(x > lambd, x - bias, torch.where(x < -lambd, x + bias, zero))
    return result.to(x.dtype)


def rows_and_columns(x: Tensor, axis: int) -> Tensor:
    """A tensor as a matrix, cut before an axis."""
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), -1)


@operator("Softmax", until=12, in_place=True)
def softmax_before_13(x: Tensor, *, axis: int = 1) -> Tensor:
    """Over all axes from one on."""
    return torch.softmax(rows_and_columns(x, axis), 1).reshape(x.shape)


@operator("Softmax", since=13, in_place=True)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Along one axis."""
    return torch.softmax(x, axis)


@operator("LogSoftmax", until=12, in_place=True)
def log_softmax_before_13(x: Tensor, *, axis: int = 1) -> Tensor:
    """Over all axes from one on."""
    return torch.log_softmax(rows_and_columns(x, axis), 1).reshape(x.shape)


@operator("LogSoftmax", since=13, in_place=True)
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Along one axis."""
    return torch.log_softmax(x, axis)


@operator("Hardmax", until=12)
def hardmax_before_13(x: Tensor, *, axis: int = 1) -> Tensor:
    """Over all axes from one on."""
    return hardmax(rows_and_columns(x, axis), axis=1).reshape(x.shape)


@operator("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """1 at the first largest element along an axis, else 0."""
    places = torch.arange(x.shape[axis], device=x.device)
    shape = [1] * x.dim()
    shape[axis] = -1
    return (places.reshape(shape) == x.argmax(axis, keepdim=True)).to(x.dtype)
