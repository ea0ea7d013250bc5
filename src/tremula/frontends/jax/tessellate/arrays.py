"""Arrays that say which tile holds each row, and the functions that place them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np
from jax.core import ShapedArray
from jax.tree_util import register_pytree_node_class
from numpy.typing import DTypeLike

from tremula.frontends.jax.tessellate.parameters import Array
from tremula.frontends.jax.tessellate.primitives import (
    InconsistentTiles,
    NotTileSharded,
    barrier_p,
    check_rows,
    gather_p,
    put,
    put_replicated_p,
    put_sharded_p,
)

Slice = int | slice


def check_tile_array_multi_slice(slices: tuple[Slice, ...], shape: Sequence[int]) -> bool:
    """Whether what slices leave on each tile is contiguous: True, or an error.

    Inside a tile, all axes before the last one that is cut have one element left.
    """
    if not all(isinstance(part, int | slice) for part in slices) or len(slices) > len(shape):
        raise ValueError(
            f"Unsupported slicing `{slices}` on IPU tile array of shape `{tuple(shape)}`."
        )
    whole = [*slices[1:], *[slice(None)] * (len(shape) - len(slices))]
    cut = [i for i, part in enumerate(whole) if shape[i + 1] > 1 and part != slice(None)]
    last = max(cut, default=0)
    is_strided = any(isinstance(p, slice) and p.step not in (None, 1) for p in whole)
    if is_strided or any(not isinstance(part, int) for part in whole[:last]):
        raise ValueError(
            f"Unsupported slicing `{slices}` on IPU tile array of shape `{tuple(shape)}`: what is"
            " left on a tile would not be contiguous."
        )
    return True


@register_pytree_node_class
@dataclass(frozen=True)
class TileShardedArray:
    """An array whose row i is held, contiguously, by tile tiles[i].

    `tile_put_sharded` and `tile_put_replicated` make one. On the host it is an ordinary array.
    """

    array: Any  # of JAX, traced, or of NumPy
    tiles: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiles", tuple(int(tile) for tile in self.tiles))
        if hasattr(self.array, "shape"):
            check_rows(self.array, self.tiles)

    def tree_flatten(self) -> tuple[tuple, tuple]:
        return (self.array,), self.tiles

    @classmethod
    def tree_unflatten(cls, tiles: tuple, children: tuple) -> "TileShardedArray":
        result = object.__new__(cls)  # JAX also builds trees of things that have no shape
        object.__setattr__(result, "array", children[0])
        object.__setattr__(result, "tiles", tiles)
        return result

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def size(self) -> int:
        return self.array.size

    @property
    def aval(self) -> ShapedArray:
        return ShapedArray(self.shape, self.dtype)

    @property
    def num_tiles(self) -> int:
        return len(self.tiles)

    @property
    def tile_aval(self) -> ShapedArray:
        """What one tile holds."""
        return ShapedArray(self.shape[1:], self.dtype)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        return self.shape[1:]

    @property
    def device_array(self) -> Array:
        return self.array

    def reshape(self, shape: Sequence[int]) -> "TileShardedArray":
        """Rows of another shape; the first axis stays."""
        if shape[0] not in (-1, self.num_tiles):
            raise ValueError(
                f"Can not reshape '{tuple(shape)}' the tile sharding axis in a TileShardedArray."
            )
        return TileShardedArray(self.array.reshape((self.num_tiles, *shape[1:])), self.tiles)

    def tile_reshape(self, shape: Sequence[int]) -> "TileShardedArray":
        """What each tile holds in another shape."""
        return self.reshape((self.num_tiles, *shape))

    def squeeze(self) -> "TileShardedArray":
        """Without axes of one element; the first axis stays."""
        saved = [size for size in self.tile_shape if size != 1]
        return self.tile_reshape(saved)

    def __len__(self) -> int:
        return len(self.tiles)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.array, dtype=dtype)

    def __getitem__(self, key: Slice | tuple[Slice, ...]) -> "TileShardedArray":
        """Rows, and contiguous parts of what their tiles hold."""
        key = key if isinstance(key, tuple) else (key,)
        first = slice(key[0], key[0] + 1 or None) if isinstance(key[0], int) else key[0]
        check_tile_array_multi_slice((first, *key[1:]), self.shape)
        return TileShardedArray(self.array[(first, *key[1:])], self.tiles[first])

    @classmethod
    def concatenate(cls, arrays: Sequence["TileShardedArray"]) -> "TileShardedArray":
        """The rows of several arrays, each on its tile."""
        joined = jax.lax.concatenate([one.array for one in arrays], dimension=0)
        return cls(joined, tuple(itertools.chain(*(one.tiles for one in arrays))))


def tile_put_sharded(array: Array, tiles: Sequence[int]) -> TileShardedArray:
    """Row i of an array on tile tiles[i]."""
    tiles = _tiles(tiles)
    return TileShardedArray(put(put_sharded_p, _array(array), tiles), tiles)


def tile_put_replicated(array: object, tiles: Sequence[int]) -> TileShardedArray:
    """A copy of an array on each tile, along a new first axis."""
    tiles = _tiles(tiles)
    return TileShardedArray(put(put_replicated_p, _array(array), tiles), tiles)


def tile_constant_sharded(data: object, tiles: Sequence[int]) -> TileShardedArray:
    """Rows of numbers that are known beforehand, each on its tile."""
    return tile_put_sharded(np.asarray(data), tiles)


def tile_constant_replicated(data: object, tiles: Sequence[int]) -> TileShardedArray:
    """Numbers that are known beforehand, on each tile."""
    return tile_put_replicated(np.asarray(data), tiles)


def _array(value: object) -> Array:
    """An array as it is; numbers and lists of Python as JAX takes them."""
    return cast("Array", value) if hasattr(value, "shape") else jax.numpy.asarray(value)


def tile_gather(
    arr: Array | TileShardedArray,
    indices: Sequence[int],
    tiles: Sequence[int],
    copy: bool = False,
) -> TileShardedArray:
    """Row indices[i] of an array on tile tiles[i].

    A row that is on its tile already is not copied, unless `copy` asks for it.
    """
    tiles, indices = _tiles(tiles), tuple(int(index) for index in indices)
    if len(indices) != len(tiles):
        raise InconsistentTiles(f"{len(indices)} indices, but {len(tiles)} tiles.")
    if indices and not 0 <= min(indices) <= max(indices) < len(arr):
        raise InconsistentTiles(f"indices from 0 to {len(arr) - 1} expected, got {indices}.")
    data = arr.array if isinstance(arr, TileShardedArray) else _array(arr)
    return TileShardedArray(gather_p.bind(data, indices=indices, tiles=tiles, copy=copy), tiles)


def tile_data_barrier(*arrays: TileShardedArray) -> Any:
    """The arrays themselves; everything before is done when anything behind begins."""
    if not all(isinstance(one, TileShardedArray) for one in arrays):
        raise NotTileSharded("Tile barrier inputs must be `TileShardedArray` instances.")
    if len(arrays) == 1:
        return arrays[0]
    result = barrier_p.bind(*(one.array for one in arrays), tiles=tuple(a.tiles for a in arrays))
    return tuple(TileShardedArray(x, one.tiles) for x, one in zip(result, arrays, strict=True))


tile_barrier = tile_data_barrier


def _tiles(tiles: Sequence[int]) -> tuple[int, ...]:
    result = tuple(int(tile) for tile in tiles)
    if any(tile < 0 for tile in result):
        raise InconsistentTiles(f"tiles are numbered from 0, got {result}.")
    return result
