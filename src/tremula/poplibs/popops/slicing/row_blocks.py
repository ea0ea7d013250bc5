"""Row blocks: a matrix kept as contiguous blocks of rows and columns, one block on one tile.

Sliced tensors are laid out this way: a tile holds some columns of some rows, side by side in its
memory, so that a vertex can take any row of its block without a copy.
"""

import numpy as np

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.blocks import BlockCuts, BlockPieces
from tremula.poplar.tensors.runs import Pieces, joined_runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping

Ints = np.ndarray


def even_cuts(n: int, n_parts: int) -> Ints:
    """int64[n_parts + 1]: boundaries of parts of equal size, the last ones smaller or empty."""
    size = -(-n // n_parts)
    return np.minimum(np.arange(n_parts + 1, dtype=np.int64) * size, n)


def add_blocked_matrix(graph: Graph, type: Type, cuts: BlockCuts, name: str) -> Tensor:
    """A new unmapped [n_rows, n_columns] variable in blocks; `in_blocks` gives them back."""
    flat = graph.add_variable(type, [cuts.n_rows * cuts.n_columns], name)
    if _has_one_column(cuts) or not flat.n_elems:
        return flat.reshape((cuts.n_rows, cuts.n_columns))
    shape, strides = (cuts.n_rows, cuts.n_columns), (cuts.n_columns, 1)
    return Tensor(flat.variables, type, 0, shape, strides, BlockPieces(flat.offset, cuts))


def in_blocks(matrix: Tensor, cuts: BlockCuts) -> Tensor:
    """A matrix's elements in block order: memory order if it was made with these cuts."""
    if _has_one_column(cuts) or not matrix.n_elems:
        return matrix.flatten()
    pieces = matrix.pieces
    if isinstance(pieces, BlockPieces) and pieces.cuts == cuts and _is_whole(matrix):
        return Tensor(matrix.variables, matrix.type, pieces.offset, (matrix.n_elems,), (1,))
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
    runs = Pieces(matrix.flatten().runs()).lookup_intervals(*cuts.lines())[0]
    pieces = Pieces(joined_runs(runs))
    return Tensor(matrix.variables, matrix.type, 0, (matrix.n_elems,), (1,), pieces)


def map_flat(graph: Graph, flat: Tensor, begin: Ints, end: Ints, tile: Ints) -> None:
    """Map intervals of a flat tensor; empty ones are left out."""
    keep = end > begin
    mapping = TileMapping(begin[keep], end[keep], tile[keep], graph.target.n_tiles)
    graph.set_tile_mapping(flat, mapping)
