"""The graph's variables: one row each in a single virtual address space."""

import math
from bisect import bisect_right
from collections.abc import Hashable

import numpy as np

from tremula.base.errors import InvalidTileMapping, TensorCreationError
from tremula.base.source import Source
from tremula.base.types import Type
from tremula.poplar.tensors.interval_sweeps import mark_holders

ALIGNMENT_BYTES = 64
# An unused gap behind each variable: neighbours never look contiguous, and strict mode watches it.
GUARD_BYTES = 64
MAX_BYTES = 1 << 60  # of all variables: addresses and sums of sizes are 64-bit integers


class VariableTable:
    """Columns of all variables and constants; row index = variable id."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.types: list[Type] = []
        self.shapes: list[tuple[int, ...]] = []
        self.base_bytes: list[int] = []
        self.end_bytes: list[int] = []
        self.sources: list[Source] = []
        self.is_constant: list[bool] = []
        self.metadata_of: dict[int, int] = {}  # quarter variable -> its metadata variable
        self.notes: dict[int, Hashable] = {}  # what a library noted about a variable
        self._base_column = np.empty(0, np.int64)  # of base_bytes, with room to grow
        self._n_in_column = 0
        self.n_bytes = GUARD_BYTES  # size of the address space so far; address 0 is never used

    def __len__(self) -> int:
        return len(self.names)

    def add(
        self, name: str, type: Type, shape: tuple[int, ...], source: Source, is_constant: bool
    ) -> int:
        """Append a variable; return its id."""
        base = -(-self.n_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        end = base + math.prod(shape) * type.n_bytes
        if end > MAX_BYTES:
            raise TensorCreationError(
                f"variable {name!r} of shape {list(shape)} has {end - base:,} bytes, and all "
                f"variables of a graph together can have {MAX_BYTES:,}.",
                source=source,
                hint="no machine has that much memory: check the shape",
            )
        self.n_bytes = end + GUARD_BYTES
        self.names.append(name or f"v{len(self.names)}")
        self.types.append(type)
        self.shapes.append(shape)
        self.base_bytes.append(base)
        self.end_bytes.append(end)
        self.sources.append(source)
        self.is_constant.append(is_constant)
        return len(self.names) - 1

    def forget_from(self, n: int) -> None:
        """Drop variables from number `n` on; their addresses are not used again."""
        columns = (
            self.names, self.types, self.shapes, self.base_bytes, self.end_bytes, self.sources,
            self.is_constant,
        )  # fmt: skip
        for column in columns:
            del column[n:]
        self._n_in_column = min(self._n_in_column, n)
        for table in (self.metadata_of, self.notes):
            for variable in [v for v in table if v >= n]:
                del table[variable]

    def id_at(self, byte_address: int) -> int:
        """The variable that holds a byte."""
        return bisect_right(self.base_bytes, byte_address) - 1

    def ids_at(self, byte_addresses: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.bases(), byte_addresses, side="right") - 1

    def bases(self) -> np.ndarray:
        """`base_bytes` as a column, which grows with it."""
        n, n_known = len(self.base_bytes), self._n_in_column
        if n > len(self._base_column):
            self._base_column = np.resize(self._base_column, 2 * n)
        if n > n_known:
            self._base_column[n_known:n] = self.base_bytes[n_known:]
            self._n_in_column = n
        return self._base_column[:n]

    def holders_of(self, addresses: np.ndarray, n_bytes: int) -> list[int]:
        """The variables that hold any of some elements of `n_bytes`, ascending."""
        first = self.id_at(int(addresses.min()) * n_bytes)
        last = self.id_at(int(addresses.max()) * n_bytes)
        if first == last:  # as most do
            return [first]
        base = np.array(self.base_bytes[first : last + 1], np.int64) // n_bytes
        is_marked = np.zeros(len(base), bool)
        mark_holders(addresses, base, is_marked)
        return (np.flatnonzero(is_marked) + first).tolist()

    def n_elems(self, variable: int) -> int:
        return math.prod(self.shapes[variable])

    def describe(self, begin_byte: int, end_byte: int) -> str:
        """`'weights' elements [3, 9)`: a byte interval in the user's names."""
        variable = self.id_at(begin_byte)
        size = self.types[variable].n_bytes
        low = (begin_byte - self.base_bytes[variable]) // size
        high = (end_byte - self.base_bytes[variable] + size - 1) // size
        return f"elements [{low}, {high}) of variable {self.names[variable]!r}"

    def unmapped_error(self, begin_byte: int, end_byte: int) -> InvalidTileMapping:
        variable = self.id_at(begin_byte)
        return InvalidTileMapping(
            f"{self.describe(begin_byte, end_byte)} are not mapped to a tile.",
            source=self.sources[variable],
            hint="call graph.set_tile_mapping(tensor, tile), or add the variable with "
            "mapping='linear'",
        )
