"""Tensors on tiles: how a graph numbers its tiles, and where the elements of a tensor are.

A virtual graph is a view of some tiles of its graph, which it numbers from 0. Logs of tile maps
hold top-level numbers; callers see the numbers of the graph they use:

    virtual graph of tiles 4, 5, 7:   own 0 1 2  ->  top 4 5 7
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from tremula.base.errors import InvalidTileMapping
from tremula.base.source import user_source
from tremula.poplar.target import Target
from tremula.poplar.tensors.runs import Pieces, byte_intervals
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileLists, TileMapLog, TileMapping

# Poplar keeps at least this much of a tensor together on a tile.
MIN_LINEAR_BYTES = 128
_MOST_SHOWN = 8
TilesGiven = int | np.integer | Sequence[int] | np.ndarray


class VariableMappingMethod(Enum):
    """How `add_variable` maps a new variable."""

    NONE = None
    LINEAR = "linear"


@dataclass(frozen=True, slots=True)
class TileNumbers:
    """The tiles of a graph: `ids[own]` is the top-level number, None if they are the same."""

    n_tiles: int
    ids: np.ndarray | None = None

    def to_top(self, tiles: np.ndarray) -> np.ndarray:
        return tiles if self.ids is None else self.ids[tiles]

    def to_own(self, tiles: np.ndarray) -> np.ndarray:
        """This graph's numbers of top-level tiles; -1 for those it does not have."""
        if self.ids is None:
            return tiles
        order = np.argsort(self.ids)
        place = np.minimum(np.searchsorted(self.ids[order], tiles), len(order) - 1)
        own = order[place]
        return np.where(self.ids[own] == tiles, own, -1)

    def own_number(self, tile: int) -> int:
        """This graph's number of a top-level tile, which must be part of it."""
        number = int(self.to_own(np.array([tile]))[0])
        if number < 0:
            mine = self.to_top(np.arange(self.n_tiles))
            raise InvalidTileMapping(
                f"tile {tile} is not part of this virtual graph.",
                source=user_source(),
                hint=f"its {len(mine)} tiles are {few(mine)} of the top level",
            )
        return number

    def checked(self, tile: int) -> int:
        """The top-level number of a tile, which must exist."""
        if not isinstance(tile, int | np.integer):
            raise InvalidTileMapping(
                f"{tile!r} is not the number of a tile.",
                source=user_source(),
                hint=f"use a whole number from 0 to {self.n_tiles - 1}",
            )
        if not 0 <= tile < self.n_tiles:
            raise self.no_such_tile(tile)
        return tile if self.ids is None else int(self.ids[tile])

    def check(self, tiles: np.ndarray) -> None:
        bad = np.flatnonzero((tiles < 0) | (tiles >= self.n_tiles))
        if len(bad):
            raise self.no_such_tile(int(tiles[bad[0]]))

    def no_such_tile(self, tile: int) -> InvalidTileMapping:
        return InvalidTileMapping(
            f"tile {tile} does not exist: the graph has {self.n_tiles} tiles.",
            source=user_source(),
            hint=f"use 0 to {self.n_tiles - 1}",
        )


def few(tiles: np.ndarray) -> str:
    """Tiles as an error shows them: all of a few, the ends of many."""
    if len(tiles) <= _MOST_SHOWN:
        return str(tiles.tolist())
    return f"[{', '.join(map(str, tiles[:3]))}, … {tiles[-1]}]"


# -- mapping a tensor; tiles are top-level ---------------------------------------------------------


def map_to_tile(log: TileMapLog, tensor: Tensor, tile: int) -> None:
    size = tensor.type.n_bytes
    if (
        tensor.pieces is None
        and tensor.rank <= 1
        and (tensor.n_elems < 2 or tensor.strides[0] == 1)
    ):
        begin = tensor.offset * size
        log.add(begin, begin + tensor.n_elems * size, tile)
        return
    begin, end = tensor.byte_intervals()
    log.add_many(begin, end, np.full(len(begin), tile))


def map_intervals(
    log: TileMapLog, tensor: Tensor, begin: np.ndarray, end: np.ndarray, tile: np.ndarray
) -> None:
    """Map intervals of a flattened tensor, each to its tile."""
    runs, owner = Pieces(tensor.runs()).lookup_intervals(begin, end)
    byte_begin, byte_end, run = byte_intervals(runs, tensor.type.n_bytes)
    log.add_many(byte_begin, byte_end, tile[owner[run]])


def checked_mapping(
    tensor: Tensor, mapping: TileMapping | TileLists, tiles: TileNumbers
) -> TileMapping:
    """A mapping that names only elements and tiles that exist."""
    if not isinstance(mapping, TileMapping):
        if not isinstance(mapping, Sequence) or not all(isinstance(m, Iterable) for m in mapping):
            raise InvalidTileMapping(
                f"a tensor cannot be mapped to {mapping!r}.",
                source=user_source(),
                hint="give a tile, or for each tile a list of intervals",
            )
        if len(mapping) > tiles.n_tiles:
            raise tiles.no_such_tile(len(mapping) - 1)
        mapping = TileMapping.from_lists(mapping, tiles.n_tiles)
    bad = np.flatnonzero(
        (mapping.begin < 0) | (mapping.end < mapping.begin) | (mapping.end > tensor.n_elems)
    )
    if len(bad):
        low, high = int(mapping.begin[bad[0]]), int(mapping.end[bad[0]])
        raise InvalidTileMapping(
            f"the mapping names elements [{low}, {high}) of a tensor with {tensor.n_elems} "
            "elements.",
            source=user_source(),
            hint="intervals are over the flattened tensor",
        )
    tiles.check(mapping.tile)
    return mapping


def mapping_of(
    log: TileMapLog, tensor: Tensor, tiles: TileNumbers, require_complete: bool
) -> TileMapping:
    """Where each element of a tensor is, as intervals over its flattened elements."""
    resolved = log.resolve()
    byte_begin, byte_end = tensor.ordered_intervals()
    if require_complete and not resolved.covers(byte_begin, byte_end):
        gap = resolved.first_gap(byte_begin, byte_end)
        assert gap is not None, "something is not mapped"
        raise tensor.variables.unmapped_error(*gap)
    size = tensor.type.n_bytes
    owner, low, high, tile = resolved.split(byte_begin, byte_end)
    lengths = (byte_end - byte_begin) // size
    first = np.concatenate(([0], np.cumsum(lengths)))[:-1]
    begin = first[owner] + (low - byte_begin[owner]) // size
    end = begin + (high - low) // size
    return _merged(begin, end, tiles.to_own(tile), tiles.n_tiles)


def _merged(begin: np.ndarray, end: np.ndarray, tile: np.ndarray, n_tiles: int) -> TileMapping:
    if not len(begin):
        return TileMapping(begin, end, tile, n_tiles)
    joins = (begin[1:] == end[:-1]) & (tile[1:] == tile[:-1])
    first = np.flatnonzero(np.concatenate(([True], ~joins)))
    last = np.concatenate((first[1:] - 1, [len(begin) - 1]))
    return TileMapping(begin[first], end[last], tile[first], n_tiles)


# -- virtual graphs --------------------------------------------------------------------------------


def chosen_tiles(
    target: Target, tiles: TileNumbers, chosen: TilesGiven, upper: int | None
) -> np.ndarray:
    """The tiles of a new virtual graph, as its graph numbers them: different ones that exist."""
    if isinstance(chosen, int | np.integer):
        own = _tile_range(target, tiles, int(chosen), upper)
    elif upper is not None:
        raise InvalidTileMapping(
            f"a virtual graph got a list of tiles and an upper bound, {upper}.",
            source=user_source(),
            hint="give either (lower, upper) or a list of tiles",
        )
    else:
        own = np.asarray(chosen, np.int64)
    tiles.check(own)
    if not 0 < len(own) == len(np.unique(own)):
        raise InvalidTileMapping(
            f"a virtual graph needs one tile or more, each once, got {few(own)}.",
            source=user_source(),
            hint="name different tiles",
        )
    return own


def _tile_range(target: Target, tiles: TileNumbers, tile: int, upper: int | None) -> np.ndarray:
    """Tiles [tile, upper) or, without a bound, the first `tile` tiles of each IPU."""
    if upper is not None:
        return np.arange(tile, upper)
    if not 1 <= tile <= target.tiles_per_ipu:
        raise tiles.no_such_tile(tile)
    first = np.arange(target.n_ipus) * target.tiles_per_ipu
    return (first[:, None] + np.arange(tile)).ravel()


def target_of_tiles(target: Target, own: np.ndarray) -> Target:
    """The target of a virtual graph: as many IPUs if its tiles divide evenly, else one."""
    n_ipus = len(np.unique(own // target.tiles_per_ipu))
    per_ipu = -(-len(own) // n_ipus)
    n_ipus = n_ipus if per_ipu * n_ipus == len(own) else 1
    per_ipu = len(own) // n_ipus
    chip = target.chip.replace(n_tiles=per_ipu) if per_ipu > target.chip.n_tiles else target.chip
    return Target(chip, n_ipus, per_ipu, target.type, target.system)
