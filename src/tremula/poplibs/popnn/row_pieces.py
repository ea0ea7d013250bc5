"""A matrix cut where tiles, workers and rows end: every piece lies in one row, on one tile."""

from typing import NamedTuple

import numpy as np

from tremula.poplar.graph import Graph
from tremula.poplar.tensors.runs import expand
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poputil import split_between_workers, tile_regions


class RowPieces(NamedTuple):
    """Intervals [begin, end) of a flattened matrix, sorted by tile."""

    tile: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    row: np.ndarray
    first_column: np.ndarray


def row_pieces(graph: Graph, matrix: Tensor) -> RowPieces:
    """Pieces of a matrix where its elements are, enough of them for all workers of a tile."""
    n_cols = matrix.shape[1]
    regions = tile_regions(graph, matrix.flatten())
    grain = graph.target.vector_width(matrix.type)
    work = split_between_workers(regions, graph.target.n_worker_contexts, grain)
    tile = work.tile_of_slice
    first_row, last_row = work.begin // n_cols, (work.end - 1) // n_cols
    owner, within = expand(last_row - first_row + 1)
    row = first_row[owner] + within
    begin = np.maximum(work.begin[owner], row * n_cols)
    end = np.minimum(work.end[owner], (row + 1) * n_cols)
    return RowPieces(tile[owner], begin, end, row, begin - row * n_cols)
