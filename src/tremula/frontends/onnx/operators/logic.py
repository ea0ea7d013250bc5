"""Comparisons, logic and bits."""

from collections.abc import Callable

import torch
from torch import Tensor

from tremula.frontends.onnx.operators.math import aligned
from tremula.frontends.onnx.table import operator

_OLD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "Equal": torch.eq,
    "Less": torch.lt,
    "Greater": torch.gt,
}


def _enter(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @operator(name, until=6)
    def before_7(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        """The second operand is broadcast only if the node says so, from an axis on."""
        return function(a, aligned(a, b, axis, broadcast))

    @operator(name, since=7)
    def compute(a: Tensor, b: Tensor) -> Tensor:
        """Of elements; shapes are broadcast."""
        if not isinstance(a, Tensor):  # strings
            return torch.from_numpy(a == b)
        return function(a, b)


for _name, _function in _OLD.items():
    _enter(_name, _function)


@operator("LessOrEqual", since=12)
def less_or_equal(a: Tensor, b: Tensor) -> Tensor:
    """Of elements; shapes are broadcast."""
    return a <= b


@operator("GreaterOrEqual", since=12)
def greater_or_equal(a: Tensor, b: Tensor) -> Tensor:
    """Of elements; shapes are broadcast."""
    return a >= b


@operator("Not")
def logical_not(x: Tensor) -> Tensor:
    """Of each element."""
    return torch.logical_not(x)


@operator("BitwiseAnd", since=18)
def bitwise_and(a: Tensor, b: Tensor) -> Tensor:
    """Of the bits of whole numbers."""
    return a & b


@operator("BitwiseOr", since=18)
def bitwise_or(a: Tensor, b: Tensor) -> Tensor:
    """Of the bits of whole numbers."""
    return a | b


@operator("BitwiseXor", since=18)
def bitwise_xor(a: Tensor, b: Tensor) -> Tensor:
    """Of the bits of whole numbers."""
    return a ^ b


@operator("BitwiseNot", since=18)
def bitwise_not(x: Tensor) -> Tensor:
    """Of the bits of whole numbers."""
    return torch.bitwise_not(x)


@operator("BitShift", since=11)
def bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    """Of the bits of unsigned numbers, to the LEFT or the RIGHT."""
    if direction == "LEFT":
        return torch.bitwise_left_shift(a, b)
    return torch.bitwise_right_shift(a, b)


@operator("IsInf", since=10)
def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Infinite, in a direction whose attribute is set."""
    result = torch.zeros_like(x, dtype=torch.bool)
    if detect_positive:
        result = result | (x == torch.inf)
    return result | (x == -torch.inf) if detect_negative else result


@operator("Where", since=9)
def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Elements of the first where the condition holds, else of the second."""
    return torch.where(condition, a, b)
