"""Primitives of `tessellate_ipu.lax` that JAX does not have: in place, scaled, filled, turned."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive

from tremula.frontends.jax.tessellate.arrays import TileShardedArray
from tremula.frontends.jax.tessellate.mapping import tile_map
from tremula.frontends.jax.tessellate.primitives import make_primitive

_UNARY = """abs asin atan cbrt ceil cos erf exp expm1 floor is_finite log log1p neg not
    population_count round rsqrt sign sin sqrt tan tanh"""
_BINARY = "add atan2 div max min mul pow rem sub"
_AWAY = lax.RoundingMethod.AWAY_FROM_ZERO


def _in_place(name: str) -> Primitive:
    """An operation under the name that asked for its operand's memory to be reused.

    Programs are functional here: whether memory is reused is the compiler's choice.
    """
    function = getattr(lax, {"not": "bitwise_not"}.get(name, name))
    if name == "round":
        function = partial(lax.round, rounding_method=_AWAY)
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
    """A separate copy of an array, on the same tiles."""
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
