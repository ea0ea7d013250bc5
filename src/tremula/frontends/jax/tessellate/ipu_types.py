"""Types, shapes and data of fields on tiles, as TessellateIPU's compiled core describes them.

The core is a C++ library; its small data classes are Python here, with their JSON forms.
"""

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Self

import numpy as np

from tremula.base.errors import suggest
from tremula.frontends.jax.errors import JaxError


class IpuType(IntEnum):
    """Types of elements on tiles."""

    BOOL = 1
    CHAR = 2
    UNSIGNED_CHAR = 3
    SHORT = 4
    UNSIGNED_SHORT = 5
    INT = 6
    UNSIGNED_INT = 7
    LONG = 8
    UNSIGNED_LONG = 9
    QUARTER = 10
    HALF = 11
    FLOAT = 12

    @property
    def bytesize(self) -> int:
        return 1 if self is IpuType.QUARTER else np.dtype(_NUMPY[self]).itemsize

    @property
    def cpp_name(self) -> str:
        """The name that C++ has for it, as names of vertices contain it."""
        return "signed char" if self is IpuType.CHAR else self.name.lower().replace("_", " ")


_NUMPY = dict(zip(IpuType, "?bBhHiIqQ-ef", strict=True))  # NumPy's codes of C's types
# Tiles hold no 64-bit integers, and NumPy has no 8-bit floats.
_OF_NUMPY = {np.dtype(code): kind for kind, code in _NUMPY.items() if code not in "qQ-"}


def from_numpy_dtype_to_ipu_type(v: Any) -> IpuType:
    """The type on tiles of a NumPy type; a type on tiles is returned as it is."""
    if isinstance(v, IpuType):
        return v
    if np.dtype(v) not in _OF_NUMPY:
        known = [dtype.name for dtype in _OF_NUMPY]
        raise JaxError(
            f"tiles have no elements of type {np.dtype(v).name}.",
            hint=suggest(np.dtype(v).name, known),
        )
    return _OF_NUMPY[np.dtype(v)]


def from_ipu_type_to_numpy_dtype(v: Any) -> np.dtype:
    """The NumPy type of a type on tiles; a NumPy type is returned as it is."""
    if isinstance(v, IpuType):
        if v is IpuType.QUARTER:
            raise JaxError("NumPy has no type for QUARTER, the 8-bit floats of tiles.")
        return np.dtype(_NUMPY[v])
    return np.dtype(v)


def get_ipu_type_name(v: object) -> str:
    """The C++ name of a type, as names of vertices contain it."""
    return from_numpy_dtype_to_ipu_type(v).cpp_name


class JsonForm:
    """A description that is written to and read from JSON."""

    def to_json_str(self) -> str:
        return json.dumps(self._to_json(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json_str(cls, text: str) -> Self:
        return cls._from_json(json.loads(text))

    def _to_json(self) -> Any:
        return {name: json_of(value) for name, value in vars(self).items()}

    @classmethod
    def _from_json(cls, value: Any) -> Self:
        return cls(**value)


def json_of(value: Any) -> Any:
    """A value of such a description as JSON can hold it."""
    if isinstance(value, JsonForm):
        return value._to_json()
    if isinstance(value, list | tuple):
        return [json_of(one) for one in value]
    return int(value) if isinstance(value, IntEnum) else value


@dataclass
class IpuShapedArray(JsonForm):
    """Shape and type of an array on a tile."""

    shape: list[int] = field(default_factory=list)
    dtype: IpuType = IpuType.UNSIGNED_CHAR

    def __post_init__(self) -> None:
        self.shape = [int(size) for size in self.shape]
        self.dtype = IpuType(self.dtype)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def make_ipu_shaped_array(shape: Sequence[int], dtype: object) -> IpuShapedArray:
    """Shape and type of an array on a tile, from a NumPy type."""
    return IpuShapedArray(list(shape), from_numpy_dtype_to_ipu_type(dtype))


@dataclass
class Base64Data(JsonForm):
    """Bytes in base 64."""

    encoded_data: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.encoded_data, bytes):
            self.encoded_data = self.encoded_data.decode("ascii")

    @property
    def is_empty(self) -> bool:
        return not self.encoded_data

    @property
    def decoded_data(self) -> str:
        return self.decoded_bytes.decode("latin-1")

    @property
    def decoded_bytes(self) -> bytes:
        return base64.b64decode(self.encoded_data)

    @classmethod
    def from_encoded_data(cls, data: str | bytes) -> Self:
        return cls(data)  # pyright: ignore[reportArgumentType]

    @classmethod
    def from_decoded_data(cls, data: str | bytes) -> Self:
        plain = data.encode("latin-1") if isinstance(data, str) else data
        return cls(base64.b64encode(plain).decode("ascii"))

    def _to_json(self) -> Any:
        return None if self.is_empty else super()._to_json()

    @classmethod
    def _from_json(cls, value: Any) -> Self:
        return cls(**(value or {}))


@dataclass
class IpuTensorSlice(JsonForm):
    """Elements `begin` to `end` of a flat tensor."""

    begin: int
    end: int

    @classmethod
    def make_tensor2d_slices(cls, dim0: int, dim1: int) -> list[Self]:
        """The rows of a matrix."""
        return [cls(row * dim1, (row + 1) * dim1) for row in range(dim0)]
