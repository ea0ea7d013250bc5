"""Row blocks: a matrix kept as contiguous blocks of rows and columns, one block on one tile.

Sliced tensors are laid out this way: a tile holds some columns of some rows, side by side in its
memory, so that a vertex can take any row of its block without a copy.
"""

from dataclasses import dataclass

import numpy as np

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.runs import Pieces, Runs, expand
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping

Ints = np.ndarray


def even_cuts(n: int, n_parts: int) -> Ints:
    """int64[n_parts + 1]: boundaries of parts of equal size, the last ones smaller or empty."""
    size = -(-n // n_parts)
    return np.minimum(np.arange(n_parts + 1, dtype=np.int64) * size, n)


@dataclass(frozen=True, slots=True)
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

    def begin(self, p: Ints, q: Ints) -> Ints:
        """Position of a block's first element when blocks follow each other, columns innermost."""
        return self.row[p] * self.n_columns + self.height(p) * self.column[q]

    def height(self, p: Ints) -> Ints:
        return self.row[p + 1] - self.row[p]

    def width(self, q: Ints) -> Ints:
        return self.column[q + 1] - self.column[q]

    def runs(self) -> Runs:
        """Positions of the elements in block order, for the matrix in row-major order."""
        p = np.repeat(np.arange(len(self.row) - 1), np.diff(self.row))
        rows = np.arange(self.n_rows, dtype=np.int64)
        q = np.flatnonzero(np.diff(self.column))
        width = self.width(q)
        within = rows - self.row[p]
        start = self.begin(p[:, None], q[None, :]) + within[:, None] * width[None, :]
        count = np.broadcast_to(width, start.shape)
        return Runs(start.ravel(), count.ravel().copy(), np.ones(start.size, np.int64))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockCuts):
            return NotImplemented
        return np.array_equal(self.row, other.row) and np.array_equal(self.column, other.column)

    __hash__ = None  # pyright: ignore[reportAssignmentType] - its columns are arrays


class BlockPieces(Pieces):
    """The virtual buffer of a blocked matrix in row-major order: computed, not stored."""

    __slots__ = ("cuts", "flat")

    def __init__(self, flat: Tensor, cuts: BlockCuts):
        self.flat, self.cuts, self.layout = flat, cuts, None

    @property
    def runs(self) -> Runs:  # pyright: ignore[reportIncompatibleVariableOverride]
        runs = self.cuts.runs()
        return Runs(runs.start + self.flat.offset, runs.count, runs.stride)

    @property
    def start(self) -> Ints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return np.concatenate(([0], np.cumsum(self.runs.count)))

    def _lookup_positions(self, position: Ints) -> Ints:
        row, column = np.divmod(position, self.cuts.n_columns)
        q = np.searchsorted(self.cuts.column, column, side="right") - 1
        return self._addresses(row, q, column)

    def _addresses(self, row: Ints, q: Ints, column: Ints) -> Ints:
        cuts = self.cuts
        p = np.searchsorted(cuts.row, row, side="right") - 1
        within = (row - cuts.row[p]) * cuts.width(q) + column - cuts.column[q]
        return self.flat.offset + cuts.begin(p, q) + within

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
        return Runs(start, high - low, np.ones(len(start), np.int64)), owner


def add_blocked_matrix(graph: Graph, type: Type, cuts: BlockCuts, name: str) -> Tensor:
    """A new unmapped [n_rows, n_columns] variable in blocks; `in_blocks` gives them back."""
    flat = graph.add_variable(type, [cuts.n_rows * cuts.n_columns], name)
    if _has_one_column(cuts) or not flat.n_elems:
        return flat.reshape((cuts.n_rows, cuts.n_columns))
    shape, strides = (cuts.n_rows, cuts.n_columns), (cuts.n_columns, 1)
    return Tensor(flat.variables, type, 0, shape, strides, BlockPieces(flat, cuts))


def in_blocks(matrix: Tensor, cuts: BlockCuts) -> Tensor:
    """A matrix's elements in block order: memory order if it was made with these cuts."""
    if _has_one_column(cuts) or not matrix.n_elems:
        return matrix.flatten()
    pieces = matrix.pieces
    if isinstance(pieces, BlockPieces) and pieces.cuts == cuts and _is_whole(matrix):
        return pieces.flat.reinterpret(matrix.type)
    return _ordered(matrix, cuts)


def _has_one_column(cuts: BlockCuts) -> bool:
    return bool(np.count_nonzero(np.diff(cuts.column)) <= 1)


def _is_whole(matrix: Tensor) -> bool:
    """All of its pieces in order; the stride of a dimension of size 1 does not matter."""
    wanted = (matrix.shape[1], 1)
    strides = zip(matrix.shape, matrix.strides, wanted, strict=True)
    return matrix.offset == 0 and all(n == 1 or got == want for n, got, want in strides)


def _ordered(matrix: Tensor, cuts: BlockCuts) -> Tensor:
    """Any matrix's elements in block order; neighbours in memory are joined."""
    width = np.diff(cuts.column)
    block, line = expand(np.repeat(np.diff(cuts.row), len(width)))  # a line per row of a block
    p, q = np.divmod(block, len(width))
    begin = (cuts.row[p] + line) * cuts.n_columns + cuts.column[q]
    end = begin + width[q]
    keep = end > begin
    runs = Pieces(matrix.flatten().runs()).lookup_intervals(begin[keep], end[keep])[0]
    pieces = Pieces(joined_runs(runs))
    return Tensor(matrix.variables, matrix.type, 0, (matrix.n_elems,), (1,), pieces)


def joined_runs(runs: Runs) -> Runs:
    """The same addresses with neighbouring runs of stride 1 made one."""
    is_plain = (runs.stride == 1) | (runs.count == 1)
    joins = is_plain[1:] & is_plain[:-1] & (runs.start[1:] == runs.start[:-1] + runs.count[:-1])
    first = np.flatnonzero(np.concatenate(([True], ~joins)))
    count = np.add.reduceat(runs.count, first)
    stride = np.where(count > runs.count[first], 1, runs.stride[first])
    return Runs(runs.start[first], count, stride)


def map_flat(graph: Graph, flat: Tensor, begin: Ints, end: Ints, tile: Ints) -> None:
    """Map intervals of a flat tensor; empty ones are left out."""
    keep = end > begin
    mapping = TileMapping(begin[keep], end[keep], tile[keep], graph.target.n_tiles)
    graph.set_tile_mapping(flat, mapping)
