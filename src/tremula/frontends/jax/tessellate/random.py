"""Random numbers of the hardware: draws of the workers of each tile, and their seeds."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from numpy.typing import DTypeLike

from tremula.frontends.jax.tessellate.arrays import TileShardedArray
from tremula.frontends.jax.tessellate.primitives import InconsistentTiles, make_primitive
from tremula.hardware.known_chips import chip
from tremula.ir.settings import host_settings

SEED_WORDS = 4  # of each worker
UNIFORM_TYPES = ("float16", "float32", "int32")  # normal numbers: the floats


def _row_of_draws(name: str) -> Primitive:
    """Numbers from the machine's own generator; on other backends of JAX, from a fixed key."""

    def function(
        *, tiles: tuple[int, ...], size: int, dtype: str, first: float, second: float
    ) -> jax.Array:
        shape, key = (len(tiles), size), jax.random.key(0)
        if name.endswith("normal"):
            return (first + second * jax.random.normal(key, shape)).astype(dtype)
        drawn = jax.random.uniform(key, shape)
        if dtype == "int32":
            return jnp.floor(first + second * drawn).astype(dtype)
        return (first + second * (drawn - 0.5)).astype(dtype)

    return make_primitive(name, function)


random_uniform_p = _row_of_draws("tile_random_uniform")
random_normal_p = _row_of_draws("tile_random_normal")


def tile_random_uniform(
    tiles: Sequence[int],
    size: int,
    dtype: DTypeLike,
    offset: float = 0.0,
    scale: float = 1.0,
) -> TileShardedArray:
    """`size` numbers on each tile.

    Floats are around the offset, from offset - scale / 2 to offset + scale / 2, as the hardware's
    generator makes them; integers from offset up to, and without, offset + scale.
    """
    return _drawn(random_uniform_p, tiles, size, dtype, offset, scale, UNIFORM_TYPES)


def tile_random_normal(
    tiles: Sequence[int],
    size: int,
    dtype: DTypeLike,
    mean: float = 0.0,
    stddev: float = 1.0,
) -> TileShardedArray:
    """`size` normally distributed numbers on each tile."""
    return _drawn(random_normal_p, tiles, size, dtype, mean, stddev, UNIFORM_TYPES[:2])


def check_drawn_type(name: str, dtype: DTypeLike, allowed: Sequence[str]) -> np.dtype:
    """The type of numbers that are drawn, or an error."""
    kind = np.dtype(dtype)
    if kind.name not in allowed:
        raise InconsistentTiles(f"{name} draws {', '.join(allowed)}, got {kind.name}.")
    return kind


def _drawn(
    primitive: Primitive, tiles: Sequence[int], size: int, dtype: DTypeLike, first: float,
    second: float, allowed: Sequence[str],
) -> TileShardedArray:  # fmt: skip
    kind, places = check_drawn_type(primitive.name, dtype, allowed).name, tuple(map(int, tiles))
    drawn = primitive.bind(
        tiles=places, size=int(size), dtype=kind, first=float(first), second=float(second)
    )
    return TileShardedArray(drawn, places)


# -- seeds -----------------------------------------------------------------------------------------

get_hw_seeds_p = make_primitive(
    "tile_get_hw_seeds",
    lambda *, tiles, n_workers: jnp.zeros((len(tiles), n_workers, SEED_WORDS), jnp.uint32),
)
set_hw_seeds_p = make_primitive("tile_set_hw_seeds", lambda seeds, *, tiles: seeds)  # noqa: ARG005


def get_ipu_num_worker_contexts() -> int:
    """Workers of a tile of the chip that was chosen."""
    return chip(host_settings().chip).n_workers


def tile_get_hw_seeds(tiles: Sequence[int]) -> TileShardedArray:
    """The seeds of the workers of tiles: uint32 [tiles, workers, 4].

    On the host, those that were set last; zeros before.
    """
    places = tuple(int(tile) for tile in tiles)
    result = get_hw_seeds_p.bind(tiles=places, n_workers=get_ipu_num_worker_contexts())
    return TileShardedArray(result, places)


def tile_set_hw_seeds(seeds: TileShardedArray) -> TileShardedArray:
    """Give the workers of tiles their seeds, and the same array.

    Return or use the result: unused operations are left out of a program.
    """
    check_seeds(seeds.tile_shape, seeds.dtype)
    return TileShardedArray(set_hw_seeds_p.bind(seeds.array, tiles=seeds.tiles), seeds.tiles)


def check_seeds(shape: Sequence[int], dtype: DTypeLike) -> None:
    """The seeds of one tile have four words for each worker."""
    wanted = (get_ipu_num_worker_contexts(), SEED_WORDS)
    if tuple(shape) != wanted or dtype != np.uint32:
        raise InconsistentTiles(
            f"the seeds of a tile are uint32 {wanted}, got {np.dtype(dtype).name} {tuple(shape)}."
        )
