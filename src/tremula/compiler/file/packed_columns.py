"""The columns of an executable's file: compacted, aligned, and equal bytes stored once.

Addresses ascend and repeat, so most columns pack into a fraction of their size, and the layers of
a network often have the same differences. `base/columns.py` makes columns small; this lays them
out.
"""

import math
import re

import numpy as np

from tremula.base.columns import compacted, expanded, is_compacted

ALIGN_BYTES = 64  # of each part of a file
_PACK_FROM = 256  # elements: smaller columns stay as they are
_WIDE = np.dtype(np.int64)
# Plain numbers only: no objects, no strings, nothing that NumPy would have to parse.
_ARRAY_TYPE = re.compile(r"[<>|=][biufc][1248]|[<>]c16")
# More than any real program has: a small file must not exhaust memory.
MAX_UNPACKED_BYTES = 1 << 34


class ListedColumns:
    """Columns unpacked, in the order they are added."""

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
        # Columns that records share are packed once; kept alive, so that ids stay unique.
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
        facts, rest = compacted(array)
        return {"shape": shape, **facts, **({} if rest is None else self._stored(rest))}

    def _stored(self, array: np.ndarray) -> dict:
        blob = np.ascontiguousarray(array).tobytes()
        place = self._place_of.get(blob)
        if place is None:
            place = self._place_of[blob] = self.n_bytes
            padded = blob + bytes(-len(blob) % ALIGN_BYTES)
            self.blobs.append(padded)
            self.n_bytes += len(padded)
        return {"dtype": array.dtype.str, "at": place}


class UnpackedColumns:
    """Columns of a file, each unpacked once, on first use."""

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
        if not is_compacted(entry):
            return self._stored(entry, size)
        self._grow(size * _WIDE.itemsize)
        return expanded(entry, size, lambda n: self._stored(entry, n))

    def _stored(self, entry: dict, size: int) -> np.ndarray:
        name = entry["dtype"]
        if not isinstance(name, str) or not _ARRAY_TYPE.fullmatch(name):
            raise ValueError(f"array type {str(name)[:40]!r}")
        return np.frombuffer(self.payload, np.dtype(name), size, entry["at"])

    def _grow(self, n_bytes: int) -> None:
        self.n_unpacked_bytes += n_bytes
        if self.n_unpacked_bytes > MAX_UNPACKED_BYTES:
            raise ValueError(f"its columns take more than {MAX_UNPACKED_BYTES} bytes")
