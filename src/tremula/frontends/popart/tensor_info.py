"""Types and shapes of tensors, as PopART's scripts write them."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from tremula.base.errors import suggest
from tremula.frontends.onnx import element_types
from tremula.frontends.popart.enums import DataType
from tremula.frontends.popart.exceptions import popart_exception

# PopART's name of a type -> NumPy's; those that scripts can hold in arrays of NumPy's own types.
NUMPY_TYPES: dict[str, np.dtype] = {
    name: kind for name, kind in element_types.NUMPY_TYPES.items() if kind.isbuiltin == 1
} | {"STRING": np.dtype(np.object_)}
FLOATING = ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16")


def onnx_type(name: "str | int | DataType | type | np.dtype") -> int:
    """ONNX's number of an element type, given in any of the ways scripts do."""
    if isinstance(name, DataType):
        name = name.name
    if isinstance(name, int) and not isinstance(name, bool):
        return name
    if isinstance(name, str) and name.upper() in TensorProto.DataType.keys():  # noqa: SIM118
        return TensorProto.DataType.Value(name.upper())
    try:
        return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(name))  # pyright: ignore[reportCallIssue, reportArgumentType]
    except (TypeError, ValueError, KeyError, SyntaxError) as error:
        raise popart_exception(
            f"No data type {name!r}: {suggest(str(name), NUMPY_TYPES)}"
        ) from error


def type_name(number: int) -> str:
    """The name of an element type from ONNX's number."""
    return TensorProto.DataType.Name(number)


class TensorInfo:
    """The type and shape of a tensor: `TensorInfo("FLOAT", [2, 3])` or `TensorInfo(array)`."""

    def __init__(
        self,
        data_type: "str | DataType | type | np.dtype | np.ndarray",
        shape: Iterable[int] | None = None,
    ):
        if isinstance(data_type, np.ndarray):
            data_type, shape = data_type.dtype, data_type.shape
        if shape is None:
            raise popart_exception(
                f"TensorInfo({data_type!r}) has no shape: give one, such as [2, 3], or an array"
            )
        self._type = type_name(onnx_type(data_type))
        self._shape = [int(n) for n in shape]

    def shape(self) -> list[int]:
        """The sizes of the dimensions."""
        return list(self._shape)

    def data_type(self) -> str:
        """The type in upper case: "FLOAT", …"""
        return self._type

    def data_type_lcase(self) -> str:
        """The type as NumPy names it: "float32", …"""
        return str(self.numpy_type())

    def numpy_type(self) -> np.dtype:
        """The type of arrays that hold such a tensor."""
        result = NUMPY_TYPES.get(self._type)
        return np.dtype(np.float32) if result is None else result

    def nelms(self) -> int:
        """How many elements."""
        return int(np.prod(self._shape, dtype=np.int64))

    def nbytes(self) -> int:
        """How many bytes."""
        return self.nelms() * self.numpy_type().itemsize

    def rank(self) -> int:
        """How many dimensions."""
        return len(self._shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorInfo) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"TensorInfo({self._type}, {self._shape})"


class InputShapeInfo:
    """Types and shapes of inputs that a model leaves open."""

    def __init__(self) -> None:
        self._infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        """Say what an input is."""
        self._infos[id] = info

    def get(self, id: str) -> TensorInfo:
        """What was said about an input."""
        if id not in self._infos:
            raise popart_exception(f"No info for the input {id!r}: {suggest(id, self._infos)}")
        return self._infos[id]

    def has(self, id: str) -> bool:
        """Whether anything was said about an input."""
        return id in self._infos

    def getAllTensorIds(self) -> list[str]:
        """The inputs something was said about."""
        return list(self._infos)


class DebugContext:
    """A name for what is built; a plain text does as well."""

    def __init__(self, name: "str | DebugContext" = ""):
        self.name = str(name)

    def __str__(self) -> str:
        return self.name


def text_of(context: "str | DebugContext | None") -> str:
    return "" if context is None else str(context)


def as_shape(shape: Sequence[int]) -> list[int]:
    return [int(n) for n in shape]
