"""Columns ↔ bytes: addresses ascend and repeat, so most columns need a fraction of their place.

Columns of int64 are stored as an arithmetic progression, as narrow differences, as narrow numbers,
or as they are, whichever is smallest. Equal bytes are stored once: the columns of the layers of a
model often have the same differences. Everything is read back exactly.
"""

import math

import numpy as np

_ALIGN_BYTES = 64
_PACK_FROM = 256  # elements: smaller columns stay as they are
_WIDE = np.dtype(np.int64)
_NARROW = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32))
_ARRAY_KINDS = "biufc"  # plain numbers only: no objects, no strings
# More than any program that could be compiled has: a small file must not fill the memory.
MAX_UNPACKED_BYTES = 1 << 34


class ListedColumns:
    """Columns as they are, in the order they come."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []

    def add(self, array: np.ndarray) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1


class PackedColumns:
    """Columns as they are written: `table` has an entry for each, `blobs` the bytes of them."""

    def __init__(self) -> None:
        self.table: list[dict] = []
        self.blobs: list[bytes] = []
        self.n_bytes = 0
        self._place_of: dict[bytes, int] = {}
        self._number_of_entry: dict[tuple, int] = {}
        # Columns that records share are packed once; they are held, so that ids stay theirs.
        self._number_of_array: dict[int, tuple[int, np.ndarray]] = {}

    def add(self, array: np.ndarray) -> int:
        """Pack a column, unless there is an equal one; the number of its entry."""
        known = self._number_of_array.get(id(array))
        if known is not None:
            return known[0]
        entry = self._entry(array)
        key = tuple((name, str(value)) for name, value in entry.items())
        number = self._number_of_entry.setdefault(key, len(self.table))
        if number == len(self.table):
            self.table.append(entry)
        self._number_of_array[id(array)] = number, array
        return number

    def _entry(self, array: np.ndarray) -> dict:
        shape = list(array.shape)
        if array.dtype != _WIDE or array.size < _PACK_FROM:
            return {"shape": shape, **self._stored(array)}
        flat = array.reshape(-1)
        steps = np.diff(flat)
        least, most = int(steps.min()), int(steps.max())
        if least == most:
            return {"shape": shape, "first": int(flat[0]), "step": least}
        narrow, narrow_steps = (
            _narrow_type(int(flat.min()), int(flat.max())),
            _narrow_type(least, most),
        )
        if narrow_steps.itemsize < narrow.itemsize:
            stored = self._stored(steps.astype(narrow_steps))
            return {"shape": shape, "first": int(flat[0]), **stored}
        if narrow == _WIDE:
            return {"shape": shape, **self._stored(array)}
        return {"shape": shape, "wide": _WIDE.str, **self._stored(flat.astype(narrow))}

    def _stored(self, array: np.ndarray) -> dict:
        blob = np.ascontiguousarray(array).tobytes()
        place = self._place_of.get(blob)
        if place is None:
            place = self._place_of[blob] = self.n_bytes
            padded = blob + bytes(-len(blob) % _ALIGN_BYTES)
            self.blobs.append(padded)
            self.n_bytes += len(padded)
        return {"dtype": array.dtype.str, "at": place}


def _narrow_type(least: int, most: int) -> np.dtype:
    for dtype in _NARROW:
        limits = np.iinfo(dtype)
        if limits.min <= least and most <= limits.max:
            return dtype
    return _WIDE


class UnpackedColumns:
    """Columns as they are read, each when it is asked for, once."""

    def __init__(self, table: list[dict], payload: memoryview):
        self.table = table
        self.payload = payload
        self.n_unpacked_bytes = 0
        self._known: dict[int, np.ndarray] = {}

    def __getitem__(self, number: int) -> np.ndarray:
        array = self._known.get(number)
        if array is None:
            entry = self.table[number]
            shape = entry["shape"]
            if not all(type(n) is int and n >= 0 for n in shape):
                raise ValueError(f"array shape {shape}")
            array = self._unpacked(entry, math.prod(shape)).reshape(shape)
            array.flags.writeable = False
            self._known[number] = array
        return array

    def _unpacked(self, entry: dict, size: int) -> np.ndarray:
        if "first" not in entry and entry.get("wide") != _WIDE.str:
            return self._stored(entry, size)
        self._grow(size * _WIDE.itemsize)
        if "first" not in entry:
            return self._stored(entry, size).astype(np.int64)
        if size == 0:
            raise ValueError("an empty column has no first number")
        column = np.empty(size, np.int64)
        column[0] = entry["first"]
        column[1:] = entry["step"] if "step" in entry else self._stored(entry, size - 1)
        return np.cumsum(column, out=column)

    def _stored(self, entry: dict, size: int) -> np.ndarray:
        dtype = np.dtype(entry["dtype"])
        if dtype.kind not in _ARRAY_KINDS:
            raise ValueError(f"array type {dtype}")
        return np.frombuffer(self.payload, dtype, size, entry["at"])

    def _grow(self, n_bytes: int) -> None:
        self.n_unpacked_bytes += n_bytes
        if self.n_unpacked_bytes > MAX_UNPACKED_BYTES:
            raise ValueError(f"its columns take more than {MAX_UNPACKED_BYTES} bytes")
