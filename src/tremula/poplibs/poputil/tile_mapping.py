"""Linear tile maps: tensors spread over the tiles in order, with offsets, and how even they are."""

from collections.abc import Sequence

import numpy as np

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.mapping import MIN_LINEAR_BYTES
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping, linear_intervals
from tremula.poplibs.poputil.shape_hash import MAPPING_SEED, hashed
from tremula.poplibs.registry import PoplibsError

Shape = Sequence[int]


def calc_linear_tile_mapping(
    graph: Graph,
    what: Tensor | Shape,
    min_elements: int | None = None,
    grain: int | None = None,
    offset: int = 0,
    *,
    is_ascending: bool = True,
) -> TileMapping:
    """The map that spreads a tensor (or n elements) over the tiles in order.

    A tensor's grain is the vector width of its type, and a tile gets at least 128 bytes; a shape
    needs both given. Part i goes to tile offset + i, or counted down from the last tile.
    """
    n_elems, least, grain = _sizes(graph, what, min_elements, grain)
    if grain < 1:
        raise PoplibsError(
            f"a map of grains of {grain} elements.",
            source=user_source(),
            hint="give a grain of at least 1",
        )
    n_tiles = graph.target.n_tiles
    begin, end = linear_intervals(n_elems, grain, n_tiles, least)
    tile = transform_tile_index(np.arange(len(begin)), n_tiles, offset, is_ascending=is_ascending)
    return TileMapping(begin, end, np.asarray(tile, np.int64), n_tiles)


def _sizes(
    graph: Graph, what: Tensor | Shape, min_elements: int | None, grain: int | None
) -> tuple[int, int, int]:
    if isinstance(what, Tensor):
        grain = grain or graph.target.vector_width(what.type)
        least = -(-MIN_LINEAR_BYTES // what.type.n_bytes) if min_elements is None else min_elements
        return what.n_elems, least, grain
    if min_elements is None or grain is None:
        raise PoplibsError(
            "a linear map of a shape needs min_elements and grain, got a shape alone.",
            source=user_source(),
            hint="give both, or a tensor, whose type decides",
        )
    return int(np.prod(list(what), dtype=np.int64)), min_elements, grain


def _check_tiles(n_tiles: int) -> None:
    if n_tiles < 1:
        raise PoplibsError(
            f"a map needs at least one tile, got {n_tiles}.",
            source=user_source(),
            hint="give the number of tiles of the target: graph.target.n_tiles",
        )


def transform_tile_index(
    tile: int | np.ndarray, n_tiles: int, offset: int = 0, *, is_ascending: bool = True
) -> int | np.ndarray:
    """The tile that part number `tile` of a map goes to."""
    _check_tiles(n_tiles)
    return (offset + tile) % n_tiles if is_ascending else (n_tiles - 1 - offset - tile) % n_tiles


def inv_transform_tile_index(
    tile: int | np.ndarray, n_tiles: int, offset: int = 0, *, is_ascending: bool = True
) -> int | np.ndarray:
    """The number of the part that a tile holds."""
    _check_tiles(n_tiles)
    return (tile - offset) % n_tiles if is_ascending else (n_tiles - 1 - offset - tile) % n_tiles


def calc_linear_tile_mapping_and_new_offset(
    graph: Graph, tensor: Tensor, offset: int = 0
) -> tuple[TileMapping, int]:
    """A linear map from tile `offset` on, and the tile after its last."""
    mapping = calc_linear_tile_mapping(graph, tensor, offset=offset)
    return mapping, (offset + len(mapping.begin)) % graph.target.n_tiles


def map_tensor_linearly(
    graph: Graph, tensor: Tensor, min_elements: int | None = None, grain: int | None = None
) -> None:
    """Spread a tensor over the tiles in order."""
    mapping = calc_linear_tile_mapping(graph, tensor, min_elements, grain)
    graph.set_tile_mapping(tensor, mapping)


def map_tensor_linearly_with_offset(
    graph: Graph,
    tensor: Tensor,
    offset: int,
    min_elements: int | None = None,
    grain: int | None = None,
    *,
    is_ascending: bool = True,
) -> int:
    """Spread a tensor from tile `offset` on; returns the offset for the next tensor."""
    mapping = calc_linear_tile_mapping(
        graph, tensor, min_elements, grain, offset, is_ascending=is_ascending
    )
    graph.set_tile_mapping(tensor, mapping)
    return (offset + len(mapping.begin)) % graph.target.n_tiles


def get_tile_imbalance(mapping: TileMapping, min_elements: int = 0, grain: int = 1) -> int:
    """How many elements the fullest tile has beyond what an even map would give it."""
    per_tile = mapping.n_elems_per_tile()
    even = -(-int(per_tile.sum()) // mapping.n_tiles)
    return max(0, int(per_tile.max(initial=0)) - max(even, min_elements, grain))


def tensor_tile_imbalance(
    graph: Graph, tensor: Tensor, min_elements: int = 0, grain: int = 1
) -> int:
    """`get_tile_imbalance` of a tensor's map."""
    return get_tile_imbalance(graph.get_tile_mapping(tensor), min_elements, grain)


def choose_mapping_offset(n_tiles: int, shape: Shape, seed: int = MAPPING_SEED) -> int:
    """A tile to start at, from a shape: small tensors of different shapes do not pile up."""
    _check_tiles(n_tiles)
    return hashed(map(int, shape), seed) % n_tiles


def dim_is_split_over_tiles(tensor: Tensor, mapping: TileMapping, dim: int) -> bool:
    """Whether some line along a dimension is on more than one tile."""
    return _is_split(tensor, mapping.begin, mapping.end, mapping.tile, dim)


def dim_is_split_over_ipus(graph: Graph, tensor: Tensor, dim: int) -> bool:
    """Whether some line along a dimension is on more than one IPU."""
    mapping = graph.get_tile_mapping(tensor)
    ipu = mapping.tile // graph.target.tiles_per_ipu
    return _is_split(tensor, mapping.begin, mapping.end, ipu, dim)


def _is_split(
    tensor: Tensor, begin: np.ndarray, end: np.ndarray, place: np.ndarray, dim: int
) -> bool:
    held_by = np.repeat(place, end - begin).reshape(tensor.shape)
    if held_by.size == 0:
        return False
    return bool((held_by != np.take(held_by, [0], axis=dim)).any())
