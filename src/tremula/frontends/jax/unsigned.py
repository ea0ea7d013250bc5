"""Unsigned arithmetic with signed integers of the same bits, in operations that tiles have, too."""

import torch
from torch import Tensor


def halved(x: Tensor, by: int | Tensor, width: int) -> Tensor:
    """Shifted to the right, with zeros coming in from the left."""
    if isinstance(by, int):
        if by == 0:
            return x
        return (x >> by) & ((1 << (width - by)) - 1)
    without_sign = torch.where(by > 0, torch.iinfo(x.dtype).max, -1).to(x.dtype)
    first = (x >> torch.clamp(by, max=1)) & without_sign
    if x.dtype.itemsize * 8 > width:  # a narrow type in a wide carrier has no sign bit
        first = x >> torch.clamp(by, max=1)
    return first >> torch.clamp(by - 1, min=0)


def below(x: Tensor, y: Tensor) -> Tensor:
    """Whether x is below y."""
    low = torch.iinfo(x.dtype).min
    return (x ^ low) < (y ^ low)


def divided(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Quotient and remainder.

    Half of x is divided as a positive number; the doubled quotient is at most one too small. A
    divisor with its top bit set goes into x at most once.
    """
    x, y = torch.broadcast_tensors(x, y)
    one = torch.ones_like(x)
    is_large = y < 0
    safe = torch.where(is_large | (y == 0), one, y)
    half = (x >> 1) & torch.iinfo(x.dtype).max
    quotient = torch.div(half, safe, rounding_mode="trunc") << 1
    is_short = ~below(x - quotient * safe, safe)
    quotient = torch.where(is_short, quotient + 1, quotient)
    quotient = torch.where(is_large, (~below(x, y)).to(x.dtype), quotient)
    quotient = torch.where(y == 0, -one, quotient)  # all ones, as XLA has it
    remainder = torch.where(y == 0, x, x - quotient * y)
    return quotient, remainder


def to_float(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded once: the bit that is cut off a large number stays as a sticky one."""
    half = ((x >> 1) & torch.iinfo(x.dtype).max) | (x & 1)
    return torch.where(x < 0, half.to(dtype) * 2, x.to(dtype))


def from_float(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Truncated; what is out of range becomes the nearest number."""
    limits = torch.iinfo(dtype)
    edge = float(limits.max) + 1.0
    x = torch.nan_to_num(x, nan=0.0)
    low = torch.clamp(x, 0.0, _before(edge, x.dtype)).to(dtype)
    high = torch.clamp(x - edge, 0.0, _before(edge, x.dtype)).to(dtype) ^ limits.min
    top = torch.full_like(high, -1)
    return torch.where(x >= 2 * edge, top, torch.where(x >= edge, high, low))


def _before(edge: float, dtype: torch.dtype) -> float:
    """The largest number of a type below a power of two."""
    if edge > torch.finfo(dtype).max:
        return torch.finfo(dtype).max
    return edge * (1.0 - torch.finfo(dtype).eps / 2)
