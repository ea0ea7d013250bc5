"""Primitives of `tessellate_ipu.lax` that JAX does not have: in place, scaled, random, seeds."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive

from tremula.frontends.jax.tessellate.arrays import TileShardedArray
from tremula.frontends.jax.tessellate.mapping import tile_map
from tremula.frontends.jax.tessellate.primitives import make_primitive

_UNARY = "abs asin cbrt ceil erf exp expm1 floor log1p log neg round rsqrt sign sin sqrt tan tanh"
_BINARY = "add atan2 div max min mul pow rem sub"
_AWAY = lax.RoundingMethod.AWAY_FROM_ZERO


def _in_place(name: str) -> Primitive:
    """An operation under the name that asked for its operand's memory to be reused.

    Programs are functional here: whether memory is reused is the compiler's choice.
    """
    function = partial(lax.round, rounding_method=_AWAY) if name == "round" else getattr(lax, name)
    return make_primitive(f"{name}_inplace", function)


IN_PLACE = {f"{name}_inplace_p": _in_place(name) for name in f"{_UNARY} {_BINARY}".split()}

scaled_add_p = make_primitive("scaled_add", lambda x, y, scale: x + scale * y)
scaled_sub_p = make_primitive("scaled_sub", lambda x, y, scale: x - scale * y)
fill_p = make_primitive(
    "tile_fill", lambda *, shape, dtype, fill_value: jnp.full(shape, fill_value, dtype)
)
rotation2d_p = make_primitive(
    "rotation2d",
    lambda cs, x, y: [cs[0] * x - cs[1] * y, cs[1] * x + cs[0] * y],
    multiple_results=True,
)


def tile_copy(x: TileShardedArray) -> TileShardedArray:
    """A copy of its own of an array, on the same tiles."""
    return tile_map(lax.copy_p, x)


def tile_fill(
    shape: Sequence[int],
    fill_value: Any,
    dtype: Any,
    tiles: Sequence[int],
) -> TileShardedArray:
    """One number everywhere, on each tile."""
    kind = np.dtype(dtype).name
    return tile_map(fill_p, tiles=tiles, shape=tuple(shape), dtype=kind, fill_value=fill_value)


def tile_rotation2d(
    cs: TileShardedArray, x: TileShardedArray, y: TileShardedArray
) -> tuple[TileShardedArray, TileShardedArray]:
    """Two vectors turned by the angle whose cosine and sine are given."""
    return tile_map(rotation2d_p, cs, x, y)


# -- random numbers of the hardware ----------------------------------------------------------------


def _row_of_draws(name: str) -> Primitive:
    """Numbers from the machine's own generator; on other backends of JAX, from a fixed key."""

    def function(
        *, tiles: tuple[int, ...], size: int, dtype: str, first: float, second: float
    ) -> Any:
        shape, key = (len(tiles), size), jax.random.key(0)
        if name.endswith("normal"):
            return (first + second * jax.random.normal(key, shape)).astype(dtype)
        return (first + second * jax.random.uniform(key, shape)).astype(dtype)

    return make_primitive(name, function)


random_uniform_p = _row_of_draws("tile_random_uniform")
random_normal_p = _row_of_draws("tile_random_normal")


def tile_random_uniform(
    tiles: Sequence[int],
    size: int,
    dtype: Any,
    offset: float = 0.0,
    scale: float = 1.0,
) -> TileShardedArray:
    """`size` numbers between offset and offset + scale on each tile."""
    return _drawn(random_uniform_p, tiles, size, dtype, offset, scale, "float16 float32 int32")


def tile_random_normal(
    tiles: Sequence[int],
    size: int,
    dtype: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
) -> TileShardedArray:
    """`size` normally distributed numbers on each tile."""
    return _drawn(random_normal_p, tiles, size, dtype, mean, stddev, "float16 float32")


def _drawn(
    primitive: Primitive, tiles: Sequence[int], size: int, dtype: Any, first: float,
    second: float, allowed: str,
) -> TileShardedArray:  # fmt: skip
    kind, places = np.dtype(dtype).name, tuple(int(tile) for tile in tiles)
    if kind not in allowed.split():
        raise ValueError(f"{primitive.name} draws {allowed.replace(' ', ', ')}, got {kind}.")
    drawn = primitive.bind(
        tiles=places, size=int(size), dtype=kind, first=float(first), second=float(second)
    )
    return TileShardedArray(drawn, places)
