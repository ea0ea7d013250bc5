"""Tile maps and copies that workloads share."""

from collections.abc import Iterable

import numpy as np

from tremula.base.types import FLOAT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping

Ints = np.ndarray


def map_rows(graph: Graph, tensor: Tensor, tiles: Ints | Iterable[int] | None = None) -> None:
    """Row i of a tensor on tile tiles[i]; without them on tile i."""
    n_rows = tensor.shape[0]
    n_in_row = tensor.n_elems // n_rows
    begin = np.arange(n_rows) * n_in_row
    tile = np.arange(n_rows) if tiles is None else np.fromiter(tiles, np.int64)
    mapping = TileMapping(begin, begin + n_in_row, tile, graph.target.n_tiles)
    graph.set_tile_mapping(tensor, mapping)


def copy_to_tiles(
    graph: Graph, sequence: Sequence, source: int, n_targets: int, n_words: int
) -> None:
    """Equal words from one tile to the first tiles of the machine."""
    one = graph.add_variable(FLOAT, [1, n_words], "one", mapping=source)
    many = graph.add_variable(FLOAT, [n_targets, n_words], "many")
    map_rows(graph, many)
    sequence.add(Copy(one.broadcast(n_targets), many))
