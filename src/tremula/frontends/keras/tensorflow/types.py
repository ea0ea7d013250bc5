"""TensorFlow's types of elements, shapes and variables, as Keras and PyTorch understand them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex, cast

import keras
import numpy as np
import torch

from tremula.base.errors import suggest
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.shared.element_types import ELEMENT_TYPES

ops: Any = keras.ops  # what is inferred of its functions' types includes None
_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "str": "string"}


class DType(str):
    """A type of elements: the name that Keras uses, with TensorFlow's properties."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)

    @property
    def base_dtype(self) -> "DType":
        return self

    @property
    def as_numpy_dtype(self) -> type:
        """The type of NumPy's scalars; `bfloat16` has none."""
        return np.dtype(object if self == "string" else str(self)).type

    @property
    def is_floating(self) -> bool:
        return "float" in str(self)

    @property
    def is_integer(self) -> bool:
        return "int" in str(self)

    @property
    def is_unsigned(self) -> bool:
        return str(self).startswith("uint")

    @property
    def is_bool(self) -> bool:
        return str(self) == "bool"

    @property
    def is_complex(self) -> bool:
        return "complex" in str(self)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 2 if str(self) == "bfloat16" else np.dtype(self.as_numpy_dtype).itemsize

    @property
    def min(self) -> float | int:
        return self._limits().min

    @property
    def max(self) -> float | int:
        return self._limits().max

    def _limits(self) -> torch.finfo | torch.iinfo:
        own = getattr(torch, str(self))
        return torch.finfo(own) if self.is_floating else torch.iinfo(own)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == str(other)
        try:
            return str(self) == str(as_dtype(other))
        except (TypeError, ValueError):
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __repr__(self) -> str:
        return f"tf.{self!s}"

    def __str__(self) -> str:
        return str.__str__(self)


DTYPES = {row.name: DType(row.name) for row in ELEMENT_TYPES.values() if row.is_common}
DTYPES["string"] = DType("string")


def as_dtype(value: object) -> DType:
    """A type of elements by its name, or by NumPy's or PyTorch's type."""
    if isinstance(value, DType):
        return value
    if isinstance(value, torch.dtype):
        name = str(value).removeprefix("torch.")
    elif isinstance(value, str):
        name = _ALIASES.get(value, value)
    else:
        kind = np.dtype(cast("Any", value))
        name = "string" if kind.kind in "OSU" else kind.name
    if name not in DTYPES:
        raise TypeError(f"TensorFlow has no type {value!r}; {suggest(name, DTYPES)}")
    return DTYPES[name]


class Dimension(int):
    """A size of a shape, as TensorFlow 1 wrote it: a whole number with `.value`."""

    @property
    def value(self) -> int:
        return int(self)


class TensorShape(tuple):  # noqa: SLOT001 - TensorFlow's own has no slots either
    """Sizes of dimensions, None where they are not known."""

    def __new__(cls, dims: Iterable[int | None] | int | None = ()) -> "TensorShape":
        if isinstance(dims, SupportsIndex) and not isinstance(dims, Iterable):
            dims = (int(dims),)
        if dims is None:
            raise keras_error(
                "tf.TensorShape(None), a shape of unknown rank, is not supported.",
                hint="compiled steps have static shapes: name the sizes",
            )
        return super().__new__(cls, (None if d is None else int(d) for d in dims))

    def as_list(self) -> list[int | None]:
        return list(self)

    @property
    def rank(self) -> int:
        return len(self)

    ndims = rank

    @property
    def dims(self) -> list[int | None]:
        return list(self)

    def num_elements(self) -> int | None:
        """The product of the sizes; None if one is not known."""
        return int(np.prod(self, dtype=np.int64)) if self.is_fully_defined() else None

    def is_fully_defined(self) -> bool:
        return None not in self

    def concatenate(self, other: Iterable[int | None] | int) -> "TensorShape":
        return TensorShape((*self, *TensorShape(other)))

    def with_rank_at_least(self, rank: int) -> "TensorShape":
        if len(self) < rank:
            raise ValueError(f"the shape {tuple(self)} has fewer than {rank} dimensions")
        return self

    def is_compatible_with(self, other: Iterable[int | None]) -> bool:
        """Whether sizes that both know are equal."""
        others = TensorShape(other)
        pairs = zip(self, others, strict=False)
        return len(self) == len(others) and all(None in (a, b) or a == b for a, b in pairs)

    def assert_is_compatible_with(self, other: Iterable[int | None]) -> None:
        if not self.is_compatible_with(other):
            raise ValueError(f"the shapes {tuple(self)} and {tuple(other)} are incompatible")

    def __getitem__(self, key: Any) -> Any:  # a size, or a shape
        result = super().__getitem__(key)
        return TensorShape(result) if isinstance(key, slice) else result


class TypeSpec:
    """What is known of values before there are any."""


class TensorSpec(TypeSpec):
    """Shape and type of a tensor."""

    def __init__(self, shape: Sequence[int | None], dtype: object = "float32", name: str = ""):
        self.shape, self.dtype, self.name = TensorShape(shape), as_dtype(dtype), name or None

    @classmethod
    def from_tensor(cls, tensor: object, name: str = "") -> "TensorSpec":
        array = cast("Any", tensor)
        return cls(array.shape, array.dtype, name)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, TensorSpec) and self.shape == other.shape
        return same and self.dtype == cast("TensorSpec", other).dtype

    def __hash__(self) -> int:
        return hash((self.shape, str(self.dtype)))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={tuple(self.shape)}, dtype={self.dtype!r}, name={self.name!r})"


class _VariableType(type):
    """`isinstance(v, tf.Variable)` of Keras's variables."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, keras.Variable)


class Variable(metaclass=_VariableType):
    """`tf.Variable(value)`: a variable of Keras."""

    def __new__(
        cls,
        initial_value: object,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: str | None = None,
        name: str | None = None,
        variable_def: object = None,
        dtype: object = None,
        **details: object,  # of distribution, which one process does not have
    ) -> Any:  # a variable of Keras
        del validate_shape, caching_device
        if variable_def is not None:
            raise keras_error("tf.Variable(variable_def=…) is TensorFlow 1.", hint="give a value")
        unknown = set(details) - {"synchronization", "aggregation", "shape", "import_scope"}
        if unknown:
            raise TypeError(f"tf.Variable has no argument {min(unknown)!r}")
        value = cast("Callable", initial_value)() if callable(initial_value) else initial_value
        kind = as_dtype(dtype) if dtype is not None else inferred_dtype(value)
        return keras.Variable(
            keras.ops.convert_to_tensor(value, dtype=str(kind)),
            dtype=str(kind),
            trainable=trainable is not False and kind.is_floating,
            name=name,
        )


def inferred_dtype(value: object) -> DType:
    """The type that TensorFlow gives a value: Python's numbers are float32 and int32."""
    if hasattr(value, "dtype"):
        return as_dtype(cast("Any", value).dtype)
    array = np.asarray(value)
    is_python = not any(isinstance(leaf, np.ndarray | np.generic) for leaf in _leaves(value))
    if is_python and array.dtype.kind in "fi":
        return DTYPES["float32" if array.dtype.kind == "f" else "int32"]
    return as_dtype(array.dtype)


def _leaves(value: object) -> list[object]:
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]
