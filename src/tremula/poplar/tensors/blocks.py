"""Blocked matrices as patterns: a few cuts say where every element is, whatever their number.

A matrix is kept as contiguous blocks of rows and columns, usually one block on one tile. Its view
in row-major order would be a run for each row of each block; `BlockPieces` computes these on
demand, and compares, moves and orders them by the cuts alone.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tremula.poplar.tensors.runs import Ints, Pieces, Runs, compress, expand, ones


@dataclass(frozen=True)
class BlockCuts:
    """Where a matrix is cut: block (p, q) has rows row[p] … row[p+1], columns column[q] … ."""

    row: Ints
    column: Ints

    @property
    def n_rows(self) -> int:
        return int(self.row[-1])

    @property
    def n_columns(self) -> int:
        return int(self.column[-1])

    @cached_property
    def key(self) -> tuple[bytes, bytes]:
        """Equal for equal cuts."""
        return tuple(np.ascontiguousarray(c, np.int64).tobytes() for c in (self.row, self.column))  # pyright: ignore[reportReturnType]

    def begin(self, p: Ints, q: Ints) -> Ints:
        """Position of a block's first element when blocks follow each other, columns innermost."""
        return self.row[p] * self.n_columns + self.height(p) * self.column[q]

    def height(self, p: Ints) -> Ints:
        return self.row[p + 1] - self.row[p]

    def width(self, q: Ints) -> Ints:
        return self.column[q + 1] - self.column[q]

    def even_sizes(self) -> tuple[int, int, int, int] | None:
        """(blocks, rows of a block, blocks, columns of a block) if all blocks are equal."""
        heights, widths = np.diff(self.row), np.diff(self.column)
        if bool((heights != heights[0]).any()) or bool((widths != widths[0]).any()):
            return None
        return len(heights), int(heights[0]), len(widths), int(widths[0])

    @cached_property
    def runs(self) -> Runs:
        """Positions of the elements in block order, for the matrix in row-major order."""
        p = np.repeat(np.arange(len(self.row) - 1), np.diff(self.row))
        rows = np.arange(self.n_rows, dtype=np.int64)
        q = np.flatnonzero(np.diff(self.column))
        width = self.width(q)
        within = rows - self.row[p]
        start = self.begin(p[:, None], q[None, :]) + within[:, None] * width[None, :]
        count = np.broadcast_to(width, start.shape)
        return Runs(start.ravel(), count.ravel().copy(), ones(start.size))

    def lines(self) -> tuple[Ints, Ints]:
        """Row-major position intervals [begin, end) of the rows of blocks, in block order."""
        width = np.diff(self.column)
        block, line = expand(np.repeat(np.diff(self.row), len(width)))
        p, q = np.divmod(block, len(width))
        begin = (self.row[p] + line) * self.n_columns + self.column[q]
        end = begin + width[q]
        keep = end > begin
        return begin[keep], end[keep]

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, BlockCuts) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)


class BlockPieces(Pieces):
    """The virtual buffer of a blocked matrix in row-major order: computed, not stored.

    `offset` is the address of its first element in memory; the others follow without a gap.
    """

    __slots__ = ("cuts", "offset")

    def __init__(self, offset: int, cuts: BlockCuts):
        self.offset, self.cuts, self.layout, self.repeats = offset, cuts, None, False
        self.alike = None

    @property
    def n_elems(self) -> int:
        return self.cuts.n_rows * self.cuts.n_columns

    @property
    def runs(self) -> Runs:
        runs = self.cuts.runs
        return Runs(runs.start + self.offset, runs.count, runs.stride)

    @property
    def start(self) -> Ints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return np.concatenate(([0], np.cumsum(self.runs.count)))

    def union(self) -> tuple[Ints, Ints]:
        begin = np.array([self.offset], np.int64)
        return begin, begin + self.n_elems

    def moved(self, n_elems: Ints, slots: int | Ints) -> "BlockPieces":
        assert isinstance(slots, int), "blocks are in one variable"
        return BlockPieces(self.offset + int(n_elems[slots]), self.cuts)

    def _lookup_strided(self, virtual: Runs) -> Runs:
        row, column = np.divmod(virtual.addresses(), self.cuts.n_columns)
        q = np.searchsorted(self.cuts.column, column, side="right") - 1
        return compress(self._addresses(row, q, column))

    def _addresses(self, row: Ints, q: Ints, column: Ints) -> Ints:
        cuts = self.cuts
        p = np.searchsorted(cuts.row, row, side="right") - 1
        within = (row - cuts.row[p]) * cuts.width(q) + column - cuts.column[q]
        return self.offset + cuts.begin(p, q) + within

    def lookup_intervals(self, begin: Ints, end: Ints) -> tuple[Runs, Ints]:
        """Runs of position intervals [begin, end), and which interval each run belongs to."""
        column_cuts, n_columns = self.cuts.column, self.cuts.n_columns
        n_parts = len(column_cuts) - 1
        first_row, first_column = np.divmod(begin, n_columns)
        last_row, last_column = np.divmod(np.maximum(end - 1, begin), n_columns)
        first = first_row * n_parts + np.searchsorted(column_cuts, first_column, side="right") - 1
        last = last_row * n_parts + np.searchsorted(column_cuts, last_column, side="right")
        owner, within = expand(np.where(end > begin, last - first, 0))
        row, q = np.divmod(first[owner] + within, n_parts)
        low = np.maximum(begin[owner], row * n_columns + column_cuts[q])
        high = np.minimum(end[owner], row * n_columns + column_cuts[q + 1])
        keep = high > low
        owner, row, q, low, high = owner[keep], row[keep], q[keep], low[keep], high[keep]
        start = self._addresses(row, q, low - row * n_columns)
        return Runs(start, high - low, ones(len(start))), owner
