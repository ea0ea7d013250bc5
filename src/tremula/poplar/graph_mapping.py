"""The tile-mapping side of a graph: which tile holds what, and virtual graphs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tremula.base.errors import InvalidTileMapping
from tremula.base.source import user_source
from tremula.poplar.target import Target
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileLists, TileMapping, linear_intervals
from tremula.poplar.vertices.compute_set import VertexRef

if TYPE_CHECKING:
    from tremula.poplar.graph import Graph, GraphState

# Poplar keeps at least this much of a tensor together on a tile.
MIN_LINEAR_BYTES = 128
_WHOLE = (int, np.integer)  # made once: set_tile_mapping is called once per vertex


class MappingSide:
    """Mixed into Graph. Tiles are numbered as this (possibly virtual) graph numbers them."""

    target: Target
    state: "GraphState"
    _tile_ids: np.ndarray | None

    def set_tile_mapping(
        self, what: Tensor | VertexRef, where: int | np.integer | TileMapping | TileLists
    ) -> None:
        """Map a vertex to a tile, or a tensor to a tile or by a mapping. The last call wins."""
        if isinstance(where, _WHOLE):
            tile = self._checked_tile(int(where))
            if isinstance(what, VertexRef):
                what.table.tile[what.row] = tile
            else:
                self._map_to_tile(what, tile)
        elif isinstance(what, VertexRef):
            raise InvalidTileMapping(
                f"a vertex cannot be mapped to {where!r}.",
                source=user_source(),
                hint="give the number of one tile",
            )
        elif isinstance(where, str):
            raise InvalidTileMapping(
                f"a tensor cannot be mapped to {where!r}.",
                source=user_source(),
                hint="give a tile or a mapping; map_linearly(tensor) spreads it over the tiles",
            )
        else:
            self._map_by_mapping(what, where)

    def _map_to_tile(self, tensor: Tensor, tile: int) -> None:
        size = tensor.type.n_bytes
        if (
            tensor.pieces is None
            and tensor.rank <= 1
            and (tensor.n_elems < 2 or tensor.strides[0] == 1)
        ):
            begin = tensor.offset * size
            self.state.tile_map.add(begin, begin + tensor.n_elems * size, tile)
            return
        begin, end = tensor.byte_intervals()
        self.state.tile_map.add_many(begin, end, np.full(len(begin), tile))

    def _map_by_mapping(self, tensor: Tensor, mapping: TileMapping | TileLists) -> None:
        if not isinstance(mapping, TileMapping):
            if len(mapping) > self.target.n_tiles:
                raise self._no_such_tile(len(mapping) - 1)
            mapping = TileMapping.from_lists(mapping, self.target.n_tiles)
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
        self._check_tiles(mapping.tile)
        self._map_intervals(tensor, mapping.begin, mapping.end, self._to_top_tiles(mapping.tile))

    def _map_intervals(
        self, tensor: Tensor, begin: np.ndarray, end: np.ndarray, tile: np.ndarray
    ) -> None:
        from tremula.poplar.tensors.runs import Pieces, byte_intervals

        runs, owner = Pieces(tensor.runs()).lookup_intervals(begin, end)
        byte_begin, byte_end, run = byte_intervals(runs, tensor.type.n_bytes)
        self.state.tile_map.add_many(byte_begin, byte_end, tile[owner[run]])

    def map_linearly(
        self, tensor: Tensor, min_elems: int | None = None, grain: int | None = None
    ) -> None:
        """Spread a tensor over the tiles in order: whole vectors, at least 128 bytes a tile."""
        size = tensor.type.n_bytes
        grain = grain or self.target.vector_width(tensor.type)
        least = -(-MIN_LINEAR_BYTES // size) if min_elems is None else min_elems
        begin, end = linear_intervals(tensor.n_elems, grain, self.target.n_tiles, least)
        self._map_intervals(tensor, begin, end, self._to_top_tiles(np.arange(len(begin))))

    def get_tile_mapping(self, tensor: Tensor, require_complete: bool = True) -> TileMapping:
        """Where each element of a tensor is, as intervals over its flattened elements."""
        resolved = self.state.tile_map.resolve()
        byte_begin, byte_end = tensor.ordered_intervals()
        if require_complete:
            gap = resolved.first_gap(byte_begin, byte_end)
            if gap is not None:
                raise self.state.variables.unmapped_error(*gap)
        size = tensor.type.n_bytes
        owner, low, high, tile = resolved.split(byte_begin, byte_end)
        lengths = (byte_end - byte_begin) // size
        first = np.concatenate(([0], np.cumsum(lengths)))[:-1]
        begin = first[owner] + (low - byte_begin[owner]) // size
        end = begin + (high - low) // size
        return _merged(begin, end, self._to_own_tiles(tile), self.target.n_tiles)

    # -- virtual graphs ----------------------------------------------------------------------------

    def create_virtual_graph(
        self, tiles: int | np.integer | Sequence[int] | np.ndarray, upper: int | None = None
    ) -> "Graph":
        """A view of this graph with its own tile numbers.

        `create_virtual_graph(n)`: the first n tiles of each IPU; `(lower, upper)`: a range of
        tiles; `([ids])`: these tiles.
        """
        from tremula.poplar.graph import Graph

        own = self._chosen_tiles(tiles, upper)
        self._check_tiles(own)
        if not 0 < len(own) == len(np.unique(own)):
            raise InvalidTileMapping(
                f"a virtual graph needs one tile or more, each once, got {own.tolist()}.",
                source=user_source(),
                hint="name different tiles",
            )
        n_ipus = len(np.unique(own // self.target.tiles_per_ipu))
        per_ipu = -(-len(own) // n_ipus)
        n_ipus = n_ipus if per_ipu * n_ipus == len(own) else 1
        view = Graph.__new__(Graph)
        view.__dict__.update(self.__dict__)
        view.target = Target(
            self.target.chip.replace(n_tiles=len(own) // n_ipus)
            if len(own) // n_ipus > self.target.chip.n_tiles
            else self.target.chip,
            n_ipus,
            len(own) // n_ipus,
            self.target.type,
            self.target.system,
        )
        view._tile_ids = self._to_top_tiles(own)
        view._top = self.top  # pyright: ignore[reportAttributeAccessIssue]
        return view

    def _chosen_tiles(
        self, tiles: int | np.integer | Sequence[int] | np.ndarray, upper: int | None
    ) -> np.ndarray:
        if isinstance(tiles, int | np.integer):
            return self._tile_range(int(tiles), upper)
        if upper is not None:
            raise InvalidTileMapping(
                f"a virtual graph got a list of tiles and an upper bound, {upper}.",
                source=user_source(),
                hint="give either (lower, upper) or a list of tiles",
            )
        return np.asarray(tiles, np.int64)

    def _tile_range(self, tile: int, upper: int | None) -> np.ndarray:
        """Tiles [tile, upper) or, without a bound, the first `tile` tiles of each IPU."""
        if upper is not None:
            return np.arange(tile, upper)
        if not 1 <= tile <= self.target.tiles_per_ipu:
            raise self._no_such_tile(tile)
        first = np.arange(self.target.n_ipus) * self.target.tiles_per_ipu
        return (first[:, None] + np.arange(tile)).ravel()

    def to_top_level_tile(self, tile: int) -> int:
        """The top-level number of one of this graph's tiles."""
        return int(self._to_top_tiles(np.array([tile]))[0])

    def from_top_level_tile(self, tile: int) -> int:
        """This graph's number of a top-level tile; an error if it is not part of it."""
        own = int(self._to_own_tiles(np.array([tile]))[0])
        if own < 0:
            raise InvalidTileMapping(
                f"tile {tile} is not part of this virtual graph.",
                source=user_source(),
                hint="see create_virtual_graph",
            )
        return own

    # -- tile numbers ------------------------------------------------------------------------------

    def _to_top_tiles(self, tiles: np.ndarray) -> np.ndarray:
        return tiles if self._tile_ids is None else self._tile_ids[tiles]

    def _to_own_tiles(self, tiles: np.ndarray) -> np.ndarray:
        if self._tile_ids is None:
            return tiles
        order = np.argsort(self._tile_ids)
        place = np.minimum(np.searchsorted(self._tile_ids[order], tiles), len(order) - 1)
        own = order[place]
        return np.where(self._tile_ids[own] == tiles, own, -1)

    def _checked_tile(self, tile: int) -> int:
        if not 0 <= tile < self.target.n_tiles:
            raise self._no_such_tile(tile)
        return tile if self._tile_ids is None else int(self._tile_ids[tile])

    def _check_tiles(self, tiles: np.ndarray) -> None:
        bad = np.flatnonzero((tiles < 0) | (tiles >= self.target.n_tiles))
        if len(bad):
            raise self._no_such_tile(int(tiles[bad[0]]))

    def _no_such_tile(self, tile: int) -> InvalidTileMapping:
        return InvalidTileMapping(
            f"tile {tile} does not exist: the graph has {self.target.n_tiles} tiles.",
            source=user_source(),
            hint=f"use 0 to {self.target.n_tiles - 1}",
        )


def _merged(begin: np.ndarray, end: np.ndarray, tile: np.ndarray, n_tiles: int) -> TileMapping:
    if not len(begin):
        return TileMapping(begin, end, tile, n_tiles)
    joins = (begin[1:] == end[:-1]) & (tile[1:] == tile[:-1])
    first = np.flatnonzero(np.concatenate(([True], ~joins)))
    last = np.concatenate((first[1:] - 1, [len(begin) - 1]))
    return TileMapping(begin[first], end[last], tile[first], n_tiles)
