"""ONNX's element types: how tensors of each are held in PyTorch, and seen in NumPy.

Types that PyTorch cannot compute with are held in a wider one that has all their values: whole
numbers of 4 and 2 bits in 8, floating-point numbers of 6 and 4 bits in 32.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor

from tremula.frontends.onnx.errors import UnsupportedOnnx


@dataclass(frozen=True)
class ElementType:
    number: int  # in ONNX
    name: str
    held: torch.dtype
    array: np.dtype

    @property
    def is_floating(self) -> bool:
        return self.held.is_floating_point

    @property
    def is_narrow(self) -> bool:
        """Whether tensors hold it in a wider type."""
        return self.name in _NARROW


_NARROW = {"UINT4", "INT4", "UINT2", "INT2", "FLOAT4E2M1", "FLOAT6E2M3", "FLOAT6E3M2"}
_HELD = {
    "FLOAT": (torch.float32, np.float32),
    "UINT8": (torch.uint8, np.uint8),
    "INT8": (torch.int8, np.int8),
    "UINT16": (torch.uint16, np.uint16),
    "INT16": (torch.int16, np.int16),
    "INT32": (torch.int32, np.int32),
    "INT64": (torch.int64, np.int64),
    "BOOL": (torch.bool, np.bool_),
    "FLOAT16": (torch.float16, np.float16),
    "DOUBLE": (torch.float64, np.float64),
    "UINT32": (torch.uint32, np.uint32),
    "UINT64": (torch.uint64, np.uint64),
    "COMPLEX64": (torch.complex64, np.complex64),
    "COMPLEX128": (torch.complex128, np.complex128),
    "BFLOAT16": (torch.bfloat16, ml_dtypes.bfloat16),
    "FLOAT8E4M3FN": (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
    "FLOAT8E4M3FNUZ": (torch.float8_e4m3fnuz, ml_dtypes.float8_e4m3fnuz),
    "FLOAT8E5M2": (torch.float8_e5m2, ml_dtypes.float8_e5m2),
    "FLOAT8E5M2FNUZ": (torch.float8_e5m2fnuz, ml_dtypes.float8_e5m2fnuz),
    "FLOAT8E8M0": (torch.float8_e8m0fnu, ml_dtypes.float8_e8m0fnu),
    "UINT4": (torch.uint8, ml_dtypes.uint4),
    "INT4": (torch.int8, ml_dtypes.int4),
    "UINT2": (torch.uint8, ml_dtypes.uint2),
    "INT2": (torch.int8, ml_dtypes.int2),
    "FLOAT4E2M1": (torch.float32, ml_dtypes.float4_e2m1fn),
    "FLOAT6E2M3": (torch.float32, ml_dtypes.float6_e2m3fn),
    "FLOAT6E3M2": (torch.float32, ml_dtypes.float6_e3m2fn),
}
_TYPES = {
    number: ElementType(number, name, _HELD[name][0], np.dtype(_HELD[name][1]))
    for name, number in TensorProto.DataType.items()
    if name in _HELD
}
STRING = TensorProto.STRING
MAX_ELEMENTS = 1 << 34  # of a tensor that a model describes without holding its data
_OF_HELD = {kind.held: kind for kind in reversed(_TYPES.values()) if not kind.is_narrow}
_OF_ARRAY = {kind.array: kind for kind in _TYPES.values()}
# NumPy's types that PyTorch knows too; the others are handed over as bits.
_SHARED = {np.dtype(array) for _, array in _HELD.values() if np.dtype(array).isbuiltin == 1}


def element_type(number: int) -> ElementType:
    kind = _TYPES.get(number)
    if kind is None:
        name = TensorProto.DataType.Name(number) if number in _NUMBERS else str(number)
        raise UnsupportedOnnx(f"Tensors of type {name} are not supported.")
    return kind


_NUMBERS = set(TensorProto.DataType.values())


def number_of(value: object) -> int:
    """The element type of a value that no type is declared for."""
    if isinstance(value, Tensor):
        return _OF_HELD[value.dtype].number
    return STRING if isinstance(value, np.ndarray) else TensorProto.UNDEFINED


def type_name(number: int) -> str:
    return TensorProto.DataType.Name(number).lower() if number in _NUMBERS else str(number)


def torch_type(number: int) -> torch.dtype:
    return element_type(number).held


def tensor_of(array: np.ndarray) -> Tensor:
    """A NumPy array as a tensor of its own; strings stay an array."""
    array = np.asarray(array)
    if array.dtype.kind in "OSU":
        return array.astype(object)  # pyright: ignore[reportReturnType] - strings are no tensors
    kind = _OF_ARRAY.get(array.dtype)
    if kind is None:
        raise UnsupportedOnnx(f"Arrays of type {array.dtype} are not supported.")
    if kind.is_narrow:
        return torch.from_numpy(array.astype(_array_held(kind)))
    array = np.array(array, order="C")
    if array.dtype in _SHARED:
        return torch.from_numpy(array)
    bits = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return torch.from_numpy(bits).view(kind.held)


def _array_held(kind: ElementType) -> np.dtype:
    return _OF_HELD[kind.held].array


def array_of(value: object, number: int | None = None) -> np.ndarray:
    """A tensor as the NumPy array of an element type, by default its own."""
    if isinstance(value, np.ndarray):
        return value
    assert isinstance(value, Tensor), "sequences are converted item by item"
    value = value.detach().cpu().contiguous()
    kind = _OF_HELD[value.dtype]
    if kind.array in _SHARED:
        array = value.numpy()
    else:
        bits = torch.uint8 if value.element_size() == 1 else torch.uint16
        array = value.view(bits).numpy().view(kind.array)
    if number is None or number in (kind.number, TensorProto.UNDEFINED):
        return array
    return array.astype(element_type(number).array)


def arrays_of(value: object, number: int | None = None) -> object:
    """The same for sequences, optional and absent values."""
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
