"""Factors of unit scaling: multiplying forwards or backwards alone, and what functions need.

Multiplying a value forwards by one factor and its gradient by another is not the gradient of
anything, yet trains alike where the gradient of every path is multiplied by the same product: then
all of a parameter's gradient has one factor, which the optimiser's rate, or Adam's normalisation,
absorbs.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from tremula.base.errors import InvalidOption, suggest


class _Context(FunctionCtx):
    """What the forward pass saves for the backward pass."""

    factor: float


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, forward: float, backward: float) -> Tensor:
        ctx.factor = backward
        return x * forward

    @staticmethod
    def backward(ctx: _Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0] * ctx.factor, None, None


def scaled(x: Tensor, *, forward: float = 1.0, backward: float = 1.0) -> Tensor:
    """A value times one factor, whose gradient is multiplied by another."""
    result = _Scaled.apply(x, forward, backward)
    assert isinstance(result, Tensor), "one result"
    return result


# -- factors of functions of one number ------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": torch.nn.functional.gelu,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


@cache
def function_factors(name: str) -> tuple[float, float]:
    """(forward, backward): 1 / deviation of f(z), and of g · f'(z), for normal z and g.

    Computed, not tabulated: integrals over the normal density.

    >>> [round(factor, 3) for factor in function_factors("relu")]
    [1.713, 1.414]
    """
    if name not in FUNCTIONS:
        raise InvalidOption(f"unit scaling knows no {name!r}.", hint=suggest(name, FUNCTIONS))
    z = torch.linspace(-10, 10, 20_001, dtype=torch.float64, requires_grad=True)
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (20 / 20_000)
    value = FUNCTIONS[name](z)
    (slope,) = torch.autograd.grad(value.sum(), z)
    value, density = value.detach(), density.detach()
    mean = float((value * density).sum())
    variance = float(((value - mean) ** 2 * density).sum())
    slopes = float((slope**2 * density).sum())
    return 1 / math.sqrt(variance), 1 / math.sqrt(slopes)


def softmax_factors(n: int) -> tuple[float, float]:
    """For normal inputs a softmax over n numbers has deviation √(e - 1) / n; its gradient √e / n.

    Of the order of n for large n, as the paper on unit scaling derives them.
    """
    return n / math.sqrt(math.e - 1), n / math.sqrt(math.e)


def cross_entropy_factor(n: int) -> float:
    """The gradient of a sample's logits, p - y, has variance (1 - 1/n) / n at the start."""
    return n / math.sqrt(n - 1) if n > 1 else 1.0


def product_factors(n_inner: int, n_rows: int, n_cols: int) -> tuple[float, float, float]:
    """[rows, inner] · [inner, cols]: of the result, and of the gradients of left and right."""
    return tuple(float(f) for f in 1 / np.sqrt([n_inner, n_cols, n_rows]))  # pyright: ignore[reportReturnType]
