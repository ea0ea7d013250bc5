"""Element types of PyTorch as the machine holds them: 64-bit ones become 32-bit."""

import numpy as np
import torch

from tremula.base.types import BOOL, FLOAT, HALF, INT, SHORT, SIGNED_CHAR, UNSIGNED_CHAR, Type
from tremula.ir.errors import UnsupportedOperations

_TYPES = {
    torch.bool: BOOL,
    torch.int8: SIGNED_CHAR,
    torch.uint8: UNSIGNED_CHAR,
    torch.int16: SHORT,
    torch.int32: INT,
    torch.int64: INT,
    torch.float16: HALF,
    torch.float32: FLOAT,
    torch.float64: FLOAT,
    torch.bfloat16: FLOAT,
    # Of either part; a tensor at the border of a program has a last dimension of both.
    torch.complex32: HALF,
    torch.complex64: FLOAT,
    torch.complex128: FLOAT,
}
_TORCH = {
    BOOL: torch.bool,
    SIGNED_CHAR: torch.int8,
    UNSIGNED_CHAR: torch.uint8,
    SHORT: torch.int16,
    INT: torch.int32,
    HALF: torch.float16,
    FLOAT: torch.float32,
}


def tile_type(dtype: torch.dtype) -> Type:
    """The machine's type for a PyTorch type."""
    if dtype not in _TYPES:
        is_float8 = "float8" in str(dtype)
        raise UnsupportedOperations(
            f"{dtype} has no counterpart on the machine.",
            hint="use poptorch.float8, which casts and multiplies 8-bit floats"
            if is_float8
            else "use float32, float16, int32, int16, int8, uint8 or bool",
        )
    return _TYPES[dtype]


def torch_type(type: Type) -> torch.dtype:
    return _TORCH[type]


def tile_shape(value: torch.Tensor) -> tuple[int, ...]:
    """The shape of a tensor at the border of a program: complex numbers are two floats."""
    return (*(int(n) for n in value.shape), *([2] if value.is_complex() else []))


def widened(values: np.ndarray, like: torch.dtype) -> torch.Tensor:
    """What the machine gave for a tensor, in the machine's type; complex if the tensor is."""
    tensor = torch.from_numpy(np.array(values))
    if like.is_complex:
        return torch.complex(*tensor.unbind(-1))
    return tensor.to(torch_type(tile_type(like)))


def narrow(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's values in the machine's type."""
    tensor = tensor.detach().cpu()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    values = tensor.numpy().astype(tile_type(tensor.dtype).dtype, copy=False)
    return np.asarray(values, order="C")  # keeps a scalar a scalar
