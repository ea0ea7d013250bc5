"""Element types: what a tensor's elements are on chips, on the host, and while they are computed.

Each type is a row of the table that front ends share, or an 8-bit float, which is a code. Unsigned
integers of 16 and 32 bits are computed as signed integers that have all their values, and results
are cut to the type's bits; those of 64 bits as the signed integers of the same bits.
"""

from builtins import bool as bool_type
from typing import Any

import numpy as np
import torch

from tremula.base.errors import suggest
from tremula.frontends.shared.element_types import ELEMENT_TYPES, in_range, to_tensor
from tremula.frontends.shared.element_types import to_array as tensor_to_array

# A NumPy type of one byte that says which 8-bit float it holds.
FLOAT8_143_NUMPY = np.dtype([("float8_143", "u1")])
FLOAT8_152_NUMPY = np.dtype([("float8_152", "u1")])


class dtype:
    """The type of a tensor's elements; compare with `is` or `==`, convert with `as_dtype`."""

    __slots__ = ("_name", "_numpy", "carrier", "is_float", "is_integer", "is_signed", "n_bytes")
    _known: "dict[str, dtype]" = {}  # noqa: RUF012

    def __init__(self) -> None:
        raise TypeError(f"Cannot create {type(self).__name__} instances")

    @classmethod
    def _make(cls, name: str, numpy: np.dtype, carrier: torch.dtype) -> "dtype":
        self = object.__new__(cls)
        self._name, self._numpy, self.carrier = name, numpy, carrier
        self.is_float = name.startswith("float")
        self.is_integer = "int" in name
        self.is_signed = self.is_float or name.startswith(("int", "complex"))
        self.n_bytes = numpy.itemsize
        cls._known[name] = self
        return self

    @property
    def name(self) -> str:
        """PopXL's name of the type, such as "float32"."""
        return self._name

    @property
    def is_complex(self) -> bool:
        return self._name.startswith("complex")

    @property
    def is_floating_point(self) -> bool:
        return self.is_float

    @property
    def is_int(self) -> bool:
        return self.is_integer

    @property
    def is_float8(self) -> bool:
        return self._name.startswith("float8")

    @property
    def is_wrapped(self) -> bool:
        """Whether results must be cut to the type's bits: it is computed in a wider one."""
        return self._numpy.kind == "u" and self.carrier.itemsize > self.n_bytes

    def as_numpy(self) -> np.dtype | type[np.generic]:
        """The type of arrays on the host."""
        return self._numpy if self.is_float8 else self._numpy.type

    @property
    def numpy_dtype(self) -> np.dtype:
        return self._numpy

    def as_torch(self) -> torch.dtype:
        """The type of PyTorch tensors that hold the same numbers."""
        row = ELEMENT_TYPES.get(self._name)
        if row is None or row.torch_type is None:
            raise ValueError(f"`popxl.{self._name}` does not have a `torch.dtype` equivalent.")
        return row.torch_type

    @classmethod
    def as_dtype(cls, type_: object) -> "dtype":
        """The PopXL type of a name, a NumPy, PyTorch or Python type, an array or a tensor."""
        if isinstance(type_, dtype):
            return type_
        if isinstance(type_, torch.Tensor | np.ndarray):
            type_ = type_.dtype
        if isinstance(type_, torch.dtype):
            name = str(type_).removeprefix("torch.")
        elif isinstance(type_, str):
            name = _ALIASES.get(type_, type_)
        else:
            name = _python_name(type_)
        if name not in cls._known:
            advice = suggest(name, cls._known)
            raise ValueError(f"There is no `popxl.dtype` that is equivalent to {type_}: {advice}")
        return cls._known[name]

    @classmethod
    def from_name(cls, name: str) -> "dtype":
        """The PopXL type of a name, such as "float32" or "half"."""
        return cls.as_dtype(str(name))

    def __repr__(self) -> str:
        return f"popxl.dtypes.{self._name}"

    def __reduce__(self) -> tuple:
        return dtype.as_dtype, (self._name,)


# NumPy's names of these types are of 64 bits.
_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "bool_": "bool"}
_PYTHON = {float: "float32", complex: "complex64"}


def _python_name(type_: Any) -> str:
    if isinstance(type_, type) and type_ in _PYTHON:
        return _PYTHON[type_]
    try:
        result = np.dtype(type_)
    except (TypeError, ValueError, SyntaxError):  # NumPy parses texts
        return str(type_)
    return result.names[0] if result.names else result.name


def _plain(name: str) -> dtype:
    row = ELEMENT_TYPES[name]
    return dtype._make(name, row.numpy_type, row.value_type or row.carrier)


bool = _plain("bool")
int8 = _plain("int8")
int16 = _plain("int16")
int32 = _plain("int32")
int64 = _plain("int64")
uint8 = _plain("uint8")
uint16 = _plain("uint16")
uint32 = _plain("uint32")
uint64 = _plain("uint64")
float16 = _plain("float16")
float32 = _plain("float32")
float64 = _plain("float64")
complex64 = _plain("complex64")
complex128 = _plain("complex128")
float8_143 = dtype._make("float8_143", FLOAT8_143_NUMPY, torch.uint8)
float8_152 = dtype._make("float8_152", FLOAT8_152_NUMPY, torch.uint8)
half, float, double = float16, float32, float64

_NP_TO_POPXL = {type_.numpy_dtype: type_ for type_ in dtype._known.values()}
_PT_TO_POPXL = {
    type_.as_torch(): type_
    for name, type_ in dtype._known.items()
    if not type_.is_float8 and (not name.startswith("uint") or name == "uint8")
}


def get_all_dtypes(
    include_bool: bool_type = True,
    include_floating_point: bool_type = True,
    include_complex: bool_type = True,
) -> list[dtype]:
    """All types of NumPy's kinds, without 8-bit floats."""
    result = [dtype._known["bool"]] if include_bool else []
    result += get_all_int_dtypes()
    if include_floating_point:
        result += get_all_floating_point_dtypes()
    return result + (get_all_complex_dtypes() if include_complex else [])


def get_all_int_dtypes(
    include_unsigned: bool_type = True, include_signed: bool_type = True
) -> list[dtype]:
    signed = [int8, int16, int32, int64] if include_signed else []
    return signed + ([uint8, uint16, uint32, uint64] if include_unsigned else [])


def get_all_floating_point_dtypes() -> list[dtype]:
    return [float16, float32, float64]


def get_all_complex_dtypes() -> list[dtype]:
    return [complex64, complex128]


def downcast_of(type_: dtype) -> dtype:
    """The type that data from the host get: of 32 bits for one of 64, others as they are."""
    return type_ if type_.is_float8 else dtype._known[ELEMENT_TYPES[type_.name].narrowed.name]


# Types of NumPy that are cut to 32 bits when data come from the host.
downcast_np_dtypes = {
    type_.numpy_dtype: downcast_of(type_).numpy_dtype
    for type_ in dtype._known.values()
    if downcast_of(type_) is not type_
}


np_dtype_float8_143, np_dtype_float8_152 = FLOAT8_143_NUMPY, FLOAT8_152_NUMPY


def to_array(data: object, type_: dtype | None = None, downcast: object = True) -> np.ndarray:
    """Host data as a NumPy array of a type; by default 64 bits become 32."""
    if isinstance(data, torch.Tensor):
        data = data.detach().cpu().numpy()
    array = data if isinstance(data, np.ndarray) else np.asarray(data)
    if type_ is None:
        result = dtype.as_dtype(array.dtype)
        type_ = downcast_of(result) if downcast else result
    if array.dtype == type_.numpy_dtype:
        return array
    if type_.is_float8:
        raise TypeError(
            f"Host data of type {array.dtype} cannot become {type_!r} without a scale."
            " Convert it with popxl.fp8_utils.host_pow2scale_cast_to_fp8"
        )
    return array.astype(type_.numpy_dtype)


def to_carrier(array: np.ndarray, type_: dtype) -> torch.Tensor:
    """An array as the tensor that is computed with; memory is shared where types allow."""
    return to_tensor(array.view(np.uint8) if type_.is_float8 else array, type_.carrier)


def from_carrier(tensor: torch.Tensor, type_: dtype) -> np.ndarray:
    """The array on the host of a computed tensor."""
    if type_.is_float8:
        return np.asarray(tensor.detach().cpu().numpy(), order="C").view(type_.numpy_dtype)
    return tensor_to_array(tensor, ELEMENT_TYPES[type_.name])


def wrapped(tensor: torch.Tensor, type_: dtype) -> torch.Tensor:
    """A result cut to the bits of its type."""
    return in_range(tensor, ELEMENT_TYPES[type_.name]) if type_.is_wrapped else tensor
