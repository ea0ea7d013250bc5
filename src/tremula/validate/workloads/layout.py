"""Tile maps, copies and messages between tiles that workloads share."""

from collections.abc import Iterable

import numpy as np

from tremula.base.types import FLOAT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.validate.timing import Timing, time_program

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


def time_messages(chip_name: str, n_ipus: int, source: Ints, target: Ints, n_words: int) -> Timing:
    """Different words from each source tile to its target tile, all at once."""

    def build(graph: Graph, sequence: Sequence) -> None:
        ours, theirs = (graph.add_variable(FLOAT, [len(source), n_words], name) for name in "ab")
        map_rows(graph, ours, source)
        map_rows(graph, theirs, target)
        sequence.add(Copy(ours, theirs))

    return time_program(chip_name, n_ipus, build)
