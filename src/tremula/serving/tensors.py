"""Tensors of the V2 protocol: datatypes, and data as JSON or as bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tremula.base.errors import TypeMismatch
from tremula.serving.errors import RequestError, bad_request

# The protocol's name of each NumPy type.
DATATYPES = {
    np.dtype(kind): name
    for name, kind in {
        "BOOL": np.bool_,
        "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
        "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
        "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
    }.items()
}  # fmt: skip
# Kinds of JSON numbers that each kind of type takes.
_JSON_KINDS = {"b": "b", "u": "iu", "i": "iu", "f": "iuf"}


@dataclass(frozen=True, slots=True)
class ServedTensor:
    """An input or output: its name, type, and shape of one row."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]  # without the batch

    @property
    def datatype(self) -> str:
        if self.dtype not in DATATYPES:
            raise TypeMismatch(
                f"tensor {self.name!r} is {self.dtype}, which the V2 protocol cannot carry.",
                hint=f"convert it in the model to one of: {', '.join(map(str, DATATYPES))}",
            )
        return DATATYPES[self.dtype]

    @property
    def n_row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    def metadata(self) -> dict[str, Any]:
        """As the protocol describes it; -1: as many rows as you like."""
        return {"name": self.name, "datatype": self.datatype, "shape": [-1, *self.shape]}

    def check(self, datatype: object, shape: object) -> int:
        """Refuse another type or shape; returns the number of rows."""
        if datatype != self.datatype:
            raise bad_request(
                f"input {self.name!r} has the datatype {self.datatype}, got {datatype!r}"
            )
        sizes = shape if isinstance(shape, list) else []
        is_shape = bool(sizes) and all(type(n) is int and n >= 0 for n in sizes)
        if not is_shape or tuple(sizes[1:]) != self.shape or sizes[0] < 1:
            wanted = ["rows", *self.shape]
            raise bad_request(
                f"input {self.name!r} has the shape [{', '.join(map(str, wanted))}], got {shape!r}"
            )
        return sizes[0]

    def from_bytes(self, data: memoryview, n_rows: int) -> np.ndarray:
        """The array that little-endian bytes hold; it shares their memory."""
        if len(data) != n_rows * self.n_row_bytes:
            raise bad_request(
                f"input {self.name!r} needs {n_rows * self.n_row_bytes:,} bytes for {n_rows} rows, "
                f"got {len(data):,}"
            )
        if self.dtype.kind == "b" and len(data) and np.frombuffer(data, np.uint8).max() > 1:
            raise bad_request(f"input {self.name!r}: a BOOL is a byte of 0 or 1")
        return np.frombuffer(data, self.dtype).reshape(n_rows, *self.shape)

    def from_json(self, data: object, n_rows: int) -> np.ndarray:
        """The array of a list of numbers, flat or nested, in the order of rows."""
        if not isinstance(data, list):
            raise bad_request(f"input {self.name!r} needs `data`, a list of numbers")
        try:
            result = np.asarray(data)
        except (ValueError, OverflowError):  # a ragged list, an integer beyond 64 bits
            raise self._no_numbers() from None
        if result.dtype.kind not in _JSON_KINDS[self.dtype.kind]:
            raise self._no_numbers()
        n_elements = n_rows * math.prod(self.shape)
        is_flat = result.ndim == 1
        if result.size != n_elements or not (is_flat or result.shape == (n_rows, *self.shape)):
            raise bad_request(
                f"input {self.name!r} needs {n_elements:,} numbers, flat or in its shape, got "
                f"{result.size:,} in the shape {list(result.shape)}"
            )
        return self._converted(result).reshape(n_rows, *self.shape)

    def _converted(self, array: np.ndarray) -> np.ndarray:
        if self.dtype.kind in "iu" and array.size:
            limits = np.iinfo(self.dtype)
            if array.min() < limits.min or array.max() > limits.max:
                raise bad_request(
                    f"input {self.name!r}: {self.datatype} holds {limits.min:,} to {limits.max:,}, "
                    f"got {array.min():,} to {array.max():,}"
                )
        with np.errstate(over="ignore"):  # a float too large for its type is infinite
            return array.astype(self.dtype, copy=False)

    def _no_numbers(self) -> RequestError:
        words = {"b": "booleans", "i": "whole numbers", "u": "whole numbers", "f": "numbers"}
        return bad_request(
            f"`data` of input {self.name!r} must be {words[self.dtype.kind]}, in lists of equal "
            "length that an integer of 64 bits or a float can hold"
        )


def to_json(array: np.ndarray) -> list[Any]:
    """Flat numbers, in the order of rows."""
    return array.reshape(-1).tolist()


def rows_of(arrays: Sequence[np.ndarray]) -> int:
    return len(arrays[0])
