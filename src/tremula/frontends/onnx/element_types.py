"""ONNX's element types: how tensors of each are represented in PyTorch and in NumPy.

Types that PyTorch does not have are stored in a wider one that has all their values: integers of 4
and 2 bits in 8, floating-point numbers of 6 and 4 bits in 32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor

from tremula.frontends.onnx.errors import UnsupportedOnnx
from tremula.frontends.shared.element_types import (
    ELEMENT_TYPES,
    ElementType,
    of_numpy,
    of_torch,
    to_array,
    to_tensor,
)


@dataclass(frozen=True)
class OnnxType:
    """An element type by ONNX's number and name: a row of the table that front ends share."""

    number: int
    name: str
    row: ElementType

    @property
    def tensor_type(self) -> torch.dtype:
        """The type of PyTorch tensors that hold it: its own, else one that has all its values."""
        return self.row.torch_type or self.row.carrier

    @property
    def array(self) -> np.dtype:
        """The type of NumPy arrays."""
        return self.row.numpy_type

    @property
    def is_floating(self) -> bool:
        return self.tensor_type.is_floating_point

    @property
    def is_narrow(self) -> bool:
        """Whether tensors hold it in a wider type."""
        return self.row.is_narrow


# Names that are not NumPy's in upper case.
_NAMES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "FLOAT8E8M0": "float8_e8m0fnu",
    "FLOAT4E2M1": "float4_e2m1fn",
    "FLOAT6E2M3": "float6_e2m3fn",
    "FLOAT6E3M2": "float6_e3m2fn",
}


def _types() -> dict[int, OnnxType]:
    rows = [
        (number, name, ELEMENT_TYPES.get(_NAMES.get(name, name.lower())))
        for name, number in TensorProto.DataType.items()
    ]
    return {number: OnnxType(number, name, row) for number, name, row in rows if row is not None}


_TYPES = _types()
NUMPY_TYPES = {kind.name: kind.array for kind in _TYPES.values()}  # by ONNX's names
STRING = TensorProto.STRING
MAX_ELEMENTS = 1 << 34  # of a tensor that a model describes without holding its data
_BY_ROW = {kind.row: kind for kind in _TYPES.values()}


def element_type(number: int) -> OnnxType:
    kind = _TYPES.get(number)
    if kind is None:
        name = TensorProto.DataType.Name(number) if number in _NUMBERS else str(number)
        raise UnsupportedOnnx(f"Tensors of type {name} are not supported.")
    return kind


_NUMBERS = set(TensorProto.DataType.values())


def number_of(value: object) -> int:
    """The element type of a value that no type is declared for."""
    if isinstance(value, Tensor):
        return _of_tensor(value).number
    return STRING if isinstance(value, np.ndarray) else TensorProto.UNDEFINED


def _of_tensor(value: Tensor) -> OnnxType:
    row = of_torch(value.dtype)
    assert row is not None, f"no front end makes tensors of {value.dtype}"
    return _BY_ROW[row]


def type_name(number: int) -> str:
    return TensorProto.DataType.Name(number).lower() if number in _NUMBERS else str(number)


def torch_type(number: int) -> torch.dtype:
    return element_type(number).tensor_type


def tensor_of(array: np.ndarray) -> Tensor:
    """A copy of a NumPy array as a tensor; strings stay an array."""
    array = np.asarray(array)
    if array.dtype.kind in "OSU":
        return array.astype(object)  # pyright: ignore[reportReturnType] - no tensors of strings
    row = of_numpy(array.dtype)
    if row is None:
        raise UnsupportedOnnx(f"Arrays of type {array.dtype} are not supported.")
    return to_tensor(np.array(array, order="C"), _BY_ROW[row].tensor_type)


def array_of(value: object, number: int | None = None) -> np.ndarray:
    """A tensor as the NumPy array of an element type, by default its own."""
    if isinstance(value, np.ndarray):
        return value
    assert isinstance(value, Tensor), "sequences are converted item by item"
    kind = _of_tensor(value)
    array = to_array(value, kind.row)
    if number is None or number in (kind.number, TensorProto.UNDEFINED):
        return array
    return array.astype(element_type(number).array)


def arrays_of(value: object, number: int | None = None) -> object:
    """A value as NumPy arrays: a tensor, or each item of a sequence; absent values stay None."""
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, Sequence):
        return [arrays_of(item, number) for item in value]
    return array_of(value, number)


def tensors_of(value: object) -> object:
    """What a caller gave, arrays, sequences of them or None, as operators take it."""
    if value is None or isinstance(value, Tensor | dict):
        return value
    if isinstance(value, list | tuple):
        return [tensors_of(item) for item in value]
    return tensor_of(np.asarray(value))


# Types of which PyTorch has few operations, and tiles none: computed as 64-bit integers.
UNSIGNED = frozenset({torch.uint16, torch.uint32, torch.uint64})


def widened(value: Any) -> Any:  # noqa: ANN401
    """Unsigned integers that PyTorch cannot compute with, as 64-bit ones."""
    is_wide = isinstance(value, Tensor) and value.dtype in UNSIGNED
    return value.to(torch.int64) if is_wide else value
