"""A complex tensor on tiles: its real and its imaginary part, two tensors of floats.

Two tensors, not one with a dimension of 2: a view of a complex tensor is then the same view of
either part, and products and sums need no part cut out first. Only at the border of a program,
where the host sees one tensor, are the parts beside each other as PyTorch holds them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pair:
    """A complex tensor: `re + i·im`. While a step is recorded both parts are fake tensors."""

    re: Tensor
    im: Tensor

    @property
    def shape(self) -> torch.Size:
        return self.re.shape

    @property
    def dtype(self) -> torch.dtype:
        """Of the parts."""
        return self.re.dtype

    def dim(self) -> int:
        return self.re.dim()


Operand = Pair | Tensor | complex  # of an operation at least one of whose operands is complex


def is_complex(value: object) -> bool:
    """Whether a leaf of an operation's arguments makes it one on complex numbers."""
    if isinstance(value, Tensor):
        return value.is_complex()
    if isinstance(value, torch.dtype):
        return value.is_complex
    return isinstance(value, complex)


def parts(value: Operand) -> tuple[Any, Any]:
    """Real and imaginary part, tensors or numbers; what is real has a 0."""
    if isinstance(value, Pair):
        return value.re, value.im
    if isinstance(value, Tensor):
        return value, 0.0
    return value.real, value.imag


def as_pair(value: Pair | Tensor) -> Pair:
    """A real tensor has an imaginary part of zeros."""
    return value if isinstance(value, Pair) else Pair(value, torch.zeros_like(value))


def part_type(dtype: torch.dtype | None) -> torch.dtype | None:
    """The type of the parts of a complex type; other types are their own."""
    return dtype.to_real() if dtype is not None and dtype.is_complex else dtype
