"""Parts of a tensor for an all-reduce, cut where its elements lie.

An all-reduce combines element by element, so any order of the elements will do that is the same on
all replicas, and these run one program. Elements are therefore taken tile by tile, in the order of
their addresses, and a tile works on what it holds already:

    tile                 0            1            2
    holds                aaaaaaaaaa   bbbbbbbb     cccccc
    part 0 of 2          aaaaa        bbbb         ccc       a row is spread as the tensor is
    part 1 of 2          aaaaa        bbbb         ccc

Parts must be equal, so where a tile's elements do not divide by the parts, a few go to the next.
"""

from typing import NamedTuple

import numpy as np

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.blocks import BlockCuts
from tremula.poplar.tensors.runs import Pieces, joined_runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.gcl.groups import Ring, round_cycles
from tremula.poplibs.popops.slicing.dynamic_slice import add_matrix_like
from tremula.poplibs.popops.slicing.row_blocks import even_cuts, in_blocks
from tremula.poplibs.poputil import in_memory_order

Ints = np.ndarray
# A tile sends 4 bytes a cycle, a chip's links about 35: with twice an even share on some tiles,
# the work on tiles is still a small part of the time on links.
MAX_IMBALANCE = 2
MAX_DOUBLINGS = 6  # of what a tile sends: by then 23 of 1,472 do


class TileOrder(NamedTuple):
    """A tensor flat, tile by tile: `tile[i]`, of the graph's own numbers, has `n_elems[i]`."""

    flat: Tensor
    tile: Ints
    n_elems: Ints


def by_tile(graph: Graph, tensor: Tensor) -> TileOrder:
    """A tensor's elements tile by tile, and on each in the order of their addresses."""
    flat, _ = in_memory_order(tensor, [])
    mapping = graph.top.get_tile_mapping(flat)
    tile = graph.tiles.to_own(mapping.tile)
    order = np.argsort(tile, kind="stable")
    tiles, first = np.unique(tile[order], return_index=True)
    n_elems = np.add.reduceat((mapping.end - mapping.begin)[order], first)
    if (np.diff(tile) < 0).any():
        runs = Pieces(flat.runs()).lookup_intervals(mapping.begin[order], mapping.end[order])[0]
        pieces = Pieces(joined_runs(runs))
        flat = Tensor(flat.variables, flat.type, 0, flat.shape, (1,), pieces)
    return TileOrder(flat, tiles, n_elems)


class Cuts(NamedTuple):
    """Where the columns of each part are cut, and the tile of each piece."""

    column: Ints  # int64[n_pieces + 1]
    tile: Ints


def cut_where_it_lies(graph: Graph, ring: Ring, order: TileOrder) -> Cuts:
    """Equal parts for the members of a ring, each spread over the tiles in the same way.

    Pieces are whole 64 bits. Tiles that send take turns, so if theirs are short, every other tile,
    or every fourth, keeps what its neighbours have as well.
    """
    type, to = order.flat.type, ring.after()
    grain = graph.target.vector_width(type)
    bus = graph.target.chip.exchange_bytes_per_cycle

    def cycles(cuts: Cuts) -> float:
        n_bytes = int(cuts.column[-1]) * type.n_bytes
        on_tile = int(np.diff(cuts.column).max()) * type.n_bytes / bus
        return round_cycles(graph, to, n_bytes, len(cuts.tile)) + on_tile

    grains = (grain << i for i in range(MAX_DOUBLINGS + 1))
    result = [_cuts(graph, order, ring.group.size, g) for g in grains]
    each = [cycles(one) for one in result]
    # The more tiles keep their own, the less is exchanged on the chip: a tenth is worth that.
    return next(one for one, takes in zip(result, each, strict=True) if takes <= 1.1 * min(each))


def _cuts(graph: Graph, order: TileOrder, n: int, grain: int) -> Cuts:
    """Pieces of whole grains: by the tensor's tile map, or evenly if that is uneven."""
    n_elems, n_tiles = order.flat.n_elems, graph.target.n_tiles
    n_grains = -(-n_elems // (n * grain))
    even = max(-(-n_elems // n_tiles), n * grain)
    if order.tile[0] < 0 or order.n_elems.max() > MAX_IMBALANCE * even:
        cuts, tiles = even_cuts(n_grains, n_tiles), np.arange(n_tiles)
    else:
        ends = np.cumsum(order.n_elems)
        cuts = np.append(0, (ends + n * grain // 2) // (n * grain))
        cuts[-1], tiles = n_grains, order.tile
    keep = np.diff(cuts) > 0
    return Cuts(np.append(0, cuts[1:][keep]) * grain, tiles[keep])


def add_parts(graph: Graph, type: Type, n: int, cuts: Cuts, name: str) -> tuple[Tensor, Tensor]:
    """A new [n, part], and its elements flat, tile by tile."""
    blocks = BlockCuts(np.array([0, n], np.int64), cuts.column)
    parts, blocks = add_matrix_like(graph, type, n, blocks, cuts.tile, name)
    return parts, in_blocks(parts, blocks)
