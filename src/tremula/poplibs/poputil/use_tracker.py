"""Maps by use: elements go to the tiles that use them, shared ones evenly among those tiles."""

from enum import Enum

import numpy as np

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.runs import expand
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplibs.poputil.intervals import split_columns
from tremula.poplibs.poputil.layout import is_contiguous_along
from tremula.poplibs.poputil.replay import replayed
from tremula.poplibs.poputil.tile_mapping import choose_mapping_offset, map_tensor_linearly

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]


class MappingMethod(Enum):
    """What to do with elements that several tiles use, beyond sharing them out."""

    NONE = "none"
    # A region whose neighbour is used by some of the same tiles goes where the neighbour goes.
    OPTIMIZE_HALO_REGIONS = "optimize_halo_regions"
    # Only tiles that use an element may hold it; every method here keeps to that.
    CONSTRAIN_MAPPING_TO_USED_TILES = "constrain_mapping_to_used_tiles"


class TensorUseTracker:
    """Collects which tile uses which elements, then maps each where it is used."""

    def __init__(self, n_tiles: int):
        self.n_tiles = n_tiles
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, int]] = []

    @property
    def is_empty(self) -> bool:
        """Was no use noted?"""
        return not self._parts

    def add(self, graph: Graph, tile: int, tensor: Tensor) -> None:
        """A tile uses all of a tensor."""
        begin, end = tensor.byte_intervals()
        top = np.full(len(begin), graph.to_top_level_tile(tile), np.int64)
        self._parts.append((begin, end, top, tensor.type.n_bytes))

    def add_tracker(self, other: "TensorUseTracker") -> None:
        """Everything that another tracker collected."""
        self._parts += other._parts

    def map_tensors_by_use(
        self,
        graph: Graph,
        grain: int,
        min_elements: int,
        *,
        extend_partial_usage: bool = False,
        method: MappingMethod = MappingMethod.NONE,
    ) -> None:
        """Map every element that was used."""
        for n_bytes in sorted({part[3] for part in self._parts}):
            parts = [part[:3] for part in self._parts if part[3] == n_bytes]
            begin, end, tile = (np.concatenate(c) for c in zip(*parts, strict=True))
            if extend_partial_usage:
                begin, end, tile = _extended(graph, begin, end, tile)
            has_halos = method is MappingMethod.OPTIMIZE_HALO_REGIONS
            low, high, where = tiles_by_use(
                begin, end, tile, grain * n_bytes, min_elements * n_bytes, has_halos=has_halos
            )
            graph.state.tile_map.add_many(low, high, where)

    def resolve(self, graph: Graph, grain: int, min_elements: int, **more: object) -> None:
        """Poplar's other name for `map_tensors_by_use`."""
        self.map_tensors_by_use(graph, grain, min_elements, **more)  # pyright: ignore[reportArgumentType]


def _extended(graph: Graph, begin: np.ndarray, end: np.ndarray, tile: np.ndarray) -> Columns:
    """Uses stretched over unused parts of a variable: a gap goes with the use before it."""
    variables = graph.state.variables
    order = np.argsort(begin, kind="stable")
    begin, end, tile = begin[order], end[order], tile[order]
    ids = variables.ids_at(begin)
    base, limit = np.asarray(variables.base_bytes)[ids], np.asarray(variables.end_bytes)[ids]
    is_first = np.concatenate(([True], ids[1:] != ids[:-1]))
    is_last = np.concatenate((ids[1:] != ids[:-1], [True]))
    reached = np.maximum.accumulate(end)
    following = np.where(is_last, limit, np.concatenate((begin[1:], [0])))
    # Only the use that reaches furthest is stretched to the next one.
    stretched = np.where(end == reached, np.maximum(end, following), end)
    return np.where(is_first, base, begin), stretched, tile


def tiles_by_use(
    begin: np.ndarray,
    end: np.ndarray,
    tile: np.ndarray,
    grain: int,
    min_elements: int,
    *,
    has_halos: bool = False,
) -> Columns:
    """Disjoint (begin, end, tile) from uses that overlap: shared parts are split between users."""
    cuts = np.unique(np.concatenate((begin, end)))
    first, last = np.searchsorted(cuts, begin), np.searchsorted(cuts, end)
    use, within = expand(last - first)
    pair = np.unique(np.stack((first[use] + within, tile[use])), axis=1)
    segment, user = pair
    n_users = np.bincount(segment, minlength=max(len(cuts) - 1, 0))
    if has_halos:
        segment, user, n_users = _without_halos(user, n_users)
    is_single = n_users[segment] == 1
    single = segment[is_single]
    low, high, where = [cuts[single]], [cuts[single + 1]], [user[is_single]]
    for segments, users in _groups(segment[~is_single], user[~is_single]):
        part, a, b = split_columns(
            cuts[segments], cuts[segments + 1], grain, len(users), min_elements
        )
        low.append(a)
        high.append(b)
        where.append(users[part])
    return np.concatenate(low), np.concatenate(high), np.concatenate(where)


def _groups(segment: np.ndarray, user: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(segments, users) of segments that are used by the same tiles."""
    bounds = np.flatnonzero(np.concatenate(([True], segment[1:] != segment[:-1])))
    groups: dict[bytes, tuple[list[int], np.ndarray]] = {}
    for a, b in zip(bounds.tolist(), [*bounds[1:].tolist(), len(segment)], strict=True):
        if a < b:
            users = user[a:b]
            groups.setdefault(users.tobytes(), ([], users))[0].append(int(segment[a]))
    return [(np.array(segments), users) for segments, users in groups.values()]


def _without_halos(user: np.ndarray, n_users: np.ndarray) -> Columns:
    """Give a shared segment a neighbour's users, if the segment's users include all of them."""
    users = np.split(user, np.cumsum(n_users)[:-1]) if len(n_users) else []
    chosen = list(users)
    for s, mine in enumerate(users):
        for neighbour in (s - 1, s + 1):
            if 0 <= neighbour < len(users) and 0 < len(users[neighbour]) < len(mine):
                theirs = users[neighbour]
                if np.isin(theirs, mine).all():
                    chosen[s] = theirs
                    break
    counts = np.array([len(c) for c in chosen], np.int64)
    return np.repeat(np.arange(len(chosen)), counts), np.concatenate(chosen), counts


@replayed
def create_broadcast_operand(
    graph: Graph,
    full: Tensor,
    type: Type,
    dim: int,
    name: str = "",
    *,
    has_dither: bool = False,
) -> Tensor:
    """A vector with an element per index of a dimension, mapped where that index is used."""
    n = full.dim(dim)
    out = graph.add_variable(type, [n], name or "broadcastOperand")
    uses = _uses_of_dim(graph, full, dim)
    if not len(uses[0]):
        map_tensor_linearly(graph, out)
        return out
    grain = graph.target.vector_width(type)
    begin, end, tile = tiles_by_use(*uses, grain, grain)
    if has_dither:
        offset = choose_mapping_offset(graph.target.n_tiles, full.shape)
        tile = (tile + offset) % graph.target.n_tiles
    graph.set_tile_mapping(out, TileMapping(begin, end, tile, graph.target.n_tiles))
    return out


def _uses_of_dim(graph: Graph, full: Tensor, dim: int) -> Columns:
    """Which tiles hold elements at which indices of a dimension: (begin, end, tile)."""
    n, n_each = full.dim(dim), full.n_elems // max(1, full.dim(dim))
    is_innermost = is_contiguous_along(full, dim)
    ordered = full.dim_roll(dim, full.rank - 1 if is_innermost else 0)
    mapping = graph.get_tile_mapping(ordered, require_complete=False)
    if not is_innermost:
        return mapping.begin // n_each, -(-mapping.end // n_each), mapping.tile
    size, low = mapping.end - mapping.begin, mapping.begin % n
    low = np.where(size < n, low, 0)
    high = np.where(size < n, low + size, n)
    wraps = high > n
    columns = (
        np.concatenate((low, np.zeros(int(wraps.sum()), np.int64))),
        np.concatenate((np.minimum(high, n), high[wraps] - n)),
        np.concatenate((mapping.tile, mapping.tile[wraps])),
    )
    return tuple(np.unique(np.stack(columns), axis=1))  # pyright: ignore[reportReturnType]
