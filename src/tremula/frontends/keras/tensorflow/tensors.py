"""Tensors as TensorFlow's scripts use them: beside NumPy's arrays, and read at any time.

PyTorch's tensors reject NumPy's arrays as left operands and in comparisons, and reject being read
while they have a gradient. TensorFlow's take both.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tremula.frontends.keras.tensorflow.types import TensorShape

OPERATORS = tuple(
    f"__{name}__"
    for name in "radd rsub rmul rtruediv rfloordiv rpow rmod rmatmul lt le gt ge ne".split()
)
Replacement = tuple[type, str, Callable[..., Any]]


def replacements() -> list[Replacement]:
    """Methods of PyTorch's tensors, and what takes their places."""
    result = [(Tensor, name, _with_arrays(getattr(Tensor, name))) for name in OPERATORS]
    return [
        *result,
        (Tensor, "numpy", _read(Tensor.numpy)),
        (Tensor, "__float__", _as_float(Tensor.__float__)),
        (Tensor, "get_shape", _get_shape),
    ]


def _with_arrays(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operator(self: Tensor, other: object) -> Any:
        if isinstance(other, np.ndarray):
            other = torch.as_tensor(other, dtype=self.dtype, device=self.device)
        return plain(self, other)

    return operator


def _read(plain: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
        return plain(self.detach() if self.requires_grad else self, force=force)

    return numpy


def _as_float(plain: Callable[..., float]) -> Callable[..., float]:
    def __float__(self: Tensor) -> float:
        return plain(self.detach() if self.requires_grad else self)

    return __float__


def _get_shape(self: Tensor) -> TensorShape:
    """The shape, with TensorFlow's methods."""
    return TensorShape(self.shape)
