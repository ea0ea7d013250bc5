"""A tensor as rows along a dimension, the parts of rows on each tile, and variables beside them."""

from typing import NamedTuple

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.runs import expand
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplibs.registry import PoplibsError

Ints = np.ndarray


class RowParts(NamedTuple):
    """Parts [begin, end) of the rows of a flattened matrix, in order, each on one tile."""

    tile: Ints
    row: Ints
    begin: Ints
    end: Ints


def row_parts(graph: Graph, matrix: Tensor) -> RowParts:
    """Every row of a matrix, cut where the tile changes."""
    mapping = graph.get_tile_mapping(matrix)
    n = max(1, matrix.shape[1])
    first = mapping.begin // n
    owner, within = expand((mapping.end - 1) // n - first + 1)
    row = first[owner] + within
    begin = np.maximum(mapping.begin[owner], row * n)
    end = np.minimum(mapping.end[owner], (row + 1) * n)
    return RowParts(mapping.tile[owner], row, begin, end)


def one_each(graph: Graph, type: Type, tiles: Ints, name: str) -> Tensor:
    """A vector with one element on each of the given tiles."""
    tensor = graph.add_variable(type, [len(tiles)], name)
    at = np.arange(len(tiles))
    graph.set_tile_mapping(tensor, TileMapping(at, at + 1, tiles, graph.target.n_tiles))
    return tensor


def checked_dim(what: str, tensor: Tensor, dim: int) -> int:
    if 0 <= dim < tensor.rank:
        return dim
    raise PoplibsError(
        f"{what} got dimension {dim} of a tensor of shape {list(tensor.shape)}.",
        source=user_source(),
        hint=f"use 0 to {tensor.rank - 1}" if tensor.rank else "give a tensor with dimensions",
    )


def as_rows(tensor: Tensor, dim: int) -> Tensor:
    """A matrix view whose rows run along a dimension."""
    last = tensor.dim_roll(dim, tensor.rank - 1)
    return last.reshape((last.n_elems // max(1, last.shape[-1]), last.shape[-1]))


def mapped_by(graph: Graph, type: Type, widths: Ints, tiles: Ints, name: str) -> Tensor:
    """A flat variable of pieces of the given widths, each on its tile."""
    ends = np.cumsum(widths)
    tensor = graph.add_variable(type, [int(ends[-1]) if len(ends) else 0], name)
    mapping = TileMapping(ends - widths, ends, tiles, graph.target.n_tiles)
    graph.set_tile_mapping(tensor, mapping)
    return tensor
