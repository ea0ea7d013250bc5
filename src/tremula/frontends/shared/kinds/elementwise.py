"""Kinds that compute element by element."""

import torch
from torch import Tensor
from torch.nn import functional

Factor = Tensor | float | None


def gelu(t: Tensor) -> Tensor:
    """X Φ(x), approximated with tanh."""
    return functional.gelu(t, approximate="tanh")


def gelu_erf(t: Tensor) -> Tensor:
    """X Φ(x)."""
    return functional.gelu(t)


def swish(t: Tensor) -> Tensor:
    """X σ(x)."""
    return functional.silu(t)


def scaled_add(x: Tensor, y: Tensor, a: Factor = 1.0, b: Factor = 1.0) -> Tensor:
    """`a x + b y`; a factor is a number or a tensor."""
    return scaled(x, a) + scaled(y, b)


def scaled(t: Tensor, factor: Factor) -> Tensor:
    """A multiple, of the type of the tensor."""
    if factor is None or (isinstance(factor, float) and factor == 1.0):
        return t
    return t * (factor.to(t.dtype) if isinstance(factor, Tensor) else number_like(t, factor))


def increment_mod(t: Tensor, increment: float, modulus: float) -> Tensor:
    """`(t + increment) % modulus` as C computes it: the remainder has the sign of the sum."""
    return torch.fmod(t + number_like(t, increment), number_like(t, modulus))


def number_like(t: Tensor, value: float) -> float | int:
    """A number as a tensor's elements are: whole for integers."""
    return value if t.is_floating_point() else int(value)
