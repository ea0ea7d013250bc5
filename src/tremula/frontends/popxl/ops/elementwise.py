"""Operations on elements: arithmetic, comparisons, activations, types."""

import functools
import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from tremula.frontends.popxl.core.registry import FUNCTIONS, public
from tremula.frontends.popxl.core.table import Operand, Operands, Scalar, operation
from tremula.frontends.popxl.core.tensor import Tensor as PopxlTensor
from tremula.frontends.popxl.dtypes import bool as boolean
from tremula.frontends.popxl.dtypes import dtype
from tremula.frontends.shared.kinds import elementwise as kinds

PAGE_SECTION = (1, "Elements")

# -- arithmetic ------------------------------------------------------------------------------------


@operation("Add", same=("lhs", "rhs"))
def add(lhs: Operand, rhs: Operand) -> Tensor:
    return torch.add(lhs, rhs)


@operation("AddLhsInplace", modifies=(0,), same=("lhs", "rhs"))
def add_(lhs: Operand, rhs: Operand) -> Tensor:
    return lhs.add_(rhs)


@operation("Sub", class_name="Subtract", same=("lhs", "rhs"))
def sub(lhs: Operand, rhs: Operand) -> Tensor:
    return torch.sub(lhs, rhs)


@operation("Mul", same=("lhs", "rhs"))
def mul(lhs: Operand, rhs: Operand) -> Tensor:
    return torch.mul(lhs, rhs)


@operation("Div", same=("lhs", "rhs"))
def div(lhs: Operand, rhs: Operand) -> Tensor:
    """Of integers, the quotient rounded down."""
    if lhs.is_floating_point() or lhs.is_complex():
        return torch.div(lhs, rhs)
    return torch.div(lhs, rhs, rounding_mode="floor")


@operation("Fmod", same=("lhs", "rhs"))
def fmod(lhs: Operand, rhs: Operand) -> Tensor:
    """The remainder of a division, with the sign of the dividend."""
    return torch.fmod(lhs, rhs)


@operation("Pow", same=("t", "e"))
def pow(t: Operand, e: Operand) -> Tensor:
    return torch.pow(t, e)


@operation("ScaledAdd", same=("X", "Y"))
def scaled_add(X: Operand, Y: Operand, a: Scalar = 1.0, b: Scalar = 1.0) -> Tensor:
    """`a X + b Y`."""
    return kinds.scaled_add(X, Y, a, b)


@operation("ScaledAddLhsInplace", modifies=(0,), same=("X", "Y"))
def scaled_add_(X: Operand, Y: Operand, a: Scalar = 1.0, b: Scalar = 1.0) -> Tensor:
    """`X ← a X + b Y`."""
    if isinstance(b, float):
        return _scale_(X, a).add_(Y, alpha=kinds.number_like(X, b))
    return _scale_(X, a).add_(kinds.scaled(Y, b))


def _scale_(t: Tensor, factor: Tensor | float | None) -> Tensor:
    if factor is None or (isinstance(factor, float) and factor == 1.0):
        return t
    if isinstance(factor, Tensor):
        return t.mul_(factor.to(t.dtype))
    return t.mul_(kinds.number_like(t, factor))


@operation("Abs")
def abs(t: Operand) -> Tensor:
    return torch.abs(t)


@operation("Neg", class_name="Negate")
def negate(t: Operand) -> Tensor:
    return torch.neg(t)


@operation("Sign")
def sign(t: Operand) -> Tensor:
    return torch.sign(t)


@operation("Floor")
def floor(t: Operand) -> Tensor:
    return torch.floor(t)


@operation("Ceil")
def ceil(t: Operand) -> Tensor:
    return torch.ceil(t)


@operation("Sqrt")
def sqrt(t: Operand) -> Tensor:
    return torch.sqrt(t)


@operation("Exp")
def exp(t: Operand) -> Tensor:
    return torch.exp(t)


@operation("ExpInplace", modifies=(0,))
def exp_(t: Operand) -> Tensor:
    return t.exp_()


@operation("Log")
def log(t: Operand) -> Tensor:
    return torch.log(t)


@operation("Log2")
def log2(t: Operand) -> Tensor:
    return torch.log2(t)


@operation("Sin")
def sin(t: Operand) -> Tensor:
    return torch.sin(t)


@operation("Cos")
def cos(t: Operand) -> Tensor:
    return torch.cos(t)


@operation("Tanh")
def tanh(t: Operand) -> Tensor:
    return torch.tanh(t)


@operation("Max", same=("ts",))
def maximum(*ts: Operand) -> Tensor:
    """The largest of several tensors, element by element."""
    return reduce(torch.maximum, ts)


@operation("Clip")
def clip(t: Operand, min: float = -math.inf, max: float = math.inf) -> Tensor:
    """Elements limited to a range."""
    return torch.clamp(t, min, max)


FUNCTIONS.enter("clamp", clip)


@operation("IncrementMod")
def increment_mod(t: Operand, increment: float, modulus: float) -> Tensor:
    """`(t + increment) % modulus`, with the sign of the sum, as in C."""
    return kinds.increment_mod(t, increment, modulus)


@operation("IncrementModInplace", modifies=(0,))
def increment_mod_(t: Operand, increment: float, modulus: float) -> Tensor:
    """`t ← (t + increment) % modulus`, with the sign of the sum, as in C."""
    return t.copy_(kinds.increment_mod(t, increment, modulus))


# -- comparisons and logic -------------------------------------------------------------------------


@operation("Equal", same=("lhs", "rhs"))
def equal(lhs: Operand, rhs: Operand) -> Tensor:
    return torch.eq(lhs, rhs)


@operation("Greater", same=("input", "other"))
def greater(input: Operand, other: Operand) -> Tensor:
    return torch.gt(input, other)


def _on_booleans(make: Callable) -> Callable:
    """Operands of other types are cast to booleans first."""

    @functools.wraps(make)
    def of_booleans(*args: object, **kwargs: object) -> PopxlTensor:
        def as_bool(t: Any) -> Any:
            is_other = isinstance(t, PopxlTensor) and t.dtype != boolean
            return cast(t, boolean) if is_other else t

        return make(*map(as_bool, args), **{name: as_bool(t) for name, t in kwargs.items()})

    return of_booleans


@operation("And", around=_on_booleans)
def logical_and(lhs: Operand, rhs: Operand) -> Tensor:
    return torch.logical_and(lhs, rhs)


@operation("Or", around=_on_booleans)
def logical_or(lhs: Operand, rhs: Operand) -> Tensor:
    return torch.logical_or(lhs, rhs)


@operation("Not", around=_on_booleans)
def logical_not(t: Operand) -> Tensor:
    return torch.logical_not(t)


@operation("IsNaN")
def isnan(t: Operand) -> Tensor:
    return torch.isnan(t)


@operation("IsInf")
def isinf(t: Operand) -> Tensor:
    return torch.isinf(t)


@operation("IsFinite")
def isfinite(t: Operand) -> Tensor:
    return torch.isfinite(t)


def _by_boolean(make: Callable) -> Callable:
    """A condition of another type is cast to booleans first."""

    @functools.wraps(make)
    def where(condition: Any, lhs: PopxlTensor, rhs: PopxlTensor) -> PopxlTensor:
        is_other = isinstance(condition, PopxlTensor) and condition.dtype != boolean
        return make(cast(condition, boolean) if is_other else condition, lhs, rhs)

    return where


@operation("Where", around=_by_boolean, same=("lhs", "rhs"))
def where(condition: Operand, lhs: Operand, rhs: Operand) -> Tensor:
    return torch.where(condition.to(torch.bool), lhs, rhs)


# -- activations -----------------------------------------------------------------------------------


@operation("Relu")
def relu(t: Operand) -> Tensor:
    return torch.relu(t)


@operation("ReluInplace", modifies=(0,))
def relu_(t: Operand) -> Tensor:
    return t.relu_()


@operation("Gelu")
def gelu(t: Operand) -> Tensor:
    """The approximation by tanh."""
    return kinds.gelu(t)


@operation("GeluInplace", modifies=(0,))
def gelu_(t: Operand) -> Tensor:
    return t.copy_(kinds.gelu(t))


@operation("GeluErf")
def geluerf(t: Operand) -> Tensor:
    return kinds.gelu_erf(t)


@operation("GeluErfInplace", modifies=(0,))
def geluerf_(t: Operand) -> Tensor:
    return t.copy_(kinds.gelu_erf(t))


@operation("Swish")
def swish(t: Operand) -> Tensor:
    return kinds.swish(t)


@operation("SwishInplace", modifies=(0,))
def swish_(t: Operand) -> Tensor:
    return t.copy_(kinds.swish(t))


@operation("Softmax")
def softmax(t: Operand, axis: int) -> Tensor:
    if not -t.dim() <= axis < t.dim():
        raise ValueError(f"axis {axis} of a softmax is out of range: {t.dim()} dimensions")
    return torch.softmax(t, axis)


# -- copies ----------------------------------------------------------------------------------------


@operation("Cast", types=lambda _inputs, attributes: dtype.as_dtype(attributes["data_type"]))
def cast(t: Operand, data_type: dtype) -> Tensor:
    """Elements in another type."""
    data_type = dtype.as_dtype(data_type)
    if data_type.name == "bool":
        return t != 0
    return t.to(data_type.carrier, copy=True)


@operation("Identity")
def identity(t: Operand, output_name: str | None = None) -> Tensor:  # noqa: ARG001
    """A copy, under another name."""
    return t.clone()


@public
def rename(t: PopxlTensor, output_name: str | None = None) -> PopxlTensor:
    """A copy under another name."""
    return identity(t, output_name)


@operation("Detach")
def detach(t: Operand) -> Tensor:
    """A copy that gradients do not pass."""
    return t.detach().clone()


@operation("DetachInplace", is_view=True)
def detach_(t: Operand) -> Tensor:
    """A view that gradients do not pass."""
    return t.detach()


@operation("Sum", name="sum_of")
def sum_of(ts: Operands) -> Tensor:
    """The sum of several tensors: of gradients that meet."""
    return reduce(torch.add, ts)
