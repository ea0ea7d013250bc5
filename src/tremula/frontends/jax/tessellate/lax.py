"""Primitives of `tessellate_ipu.lax` that JAX does not have: in place, scaled, filled, rotated."""

from collections.abc import Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir
from numpy.typing import DTypeLike

from tremula.frontends.jax.tessellate.arrays import TileShardedArray, tile_constant_sharded
from tremula.frontends.jax.tessellate.equations import (
    IpuTileMapEquation,
    make_ipu_vertex_attributes,
    make_ipu_vertex_name_templated,
    make_ipu_vertex_out_info,
)
from tremula.frontends.jax.tessellate.mapping import tile_map
from tremula.frontends.jax.tessellate.parameters import Array, Attributes, Lowered
from tremula.frontends.jax.tessellate.primitives import make_primitive
from tremula.frontends.jax.tessellate.registry import (
    describe_primitive,
    get_ipu_tile_primitive_translation,
)
from tremula.frontends.jax.tessellate.translations import (
    scale_add_tile_translation_ipu,
    scale_sub_tile_translation_ipu,
)

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
    primitive = make_primitive(f"{name}_inplace", function)
    primitive.num_inout_alias_args = 1  # pyright: ignore[reportAttributeAccessIssue]
    _, translation = get_ipu_tile_primitive_translation(name)
    describe_primitive(primitive, translation)
    return primitive


IN_PLACE = {f"{name}_inplace_p": _in_place(name) for name in f"{_UNARY} {_BINARY}".split()}
globals().update(IN_PLACE)


def register_ipu_unary_inplace_tile_primitive(orig_prim: Primitive) -> Primitive:
    """The primitive that overwrites its operand, of one with one operand."""
    return _in_place_of(orig_prim)


def register_ipu_binary_inplace_tile_primitive(orig_prim: Primitive) -> Primitive:
    """The primitive that overwrites its first operand, of one with two."""
    return _in_place_of(orig_prim)


def _in_place_of(primitive: Primitive) -> Primitive:
    name = f"{primitive.name}_inplace_p"
    return IN_PLACE[name] if name in IN_PLACE else _in_place(primitive.name)


# -- scaled sums -----------------------------------------------------------------------------------


def scaled_add_numpy_impl(a: Array, b: Array, sb: Array) -> Array:
    return a + sb * b


def scaled_sub_numpy_impl(a: Array, b: Array, sb: Array) -> Array:
    return a - sb * b


def scaled_op_abstract_eval(a: ShapedArray, b: ShapedArray, sb: ShapedArray) -> ShapedArray:
    """A scaled sum has the shape and type of its first operand."""
    del b, sb
    return a


scaled_add_p = make_primitive("scaled_add", scaled_add_numpy_impl)
scaled_sub_p = make_primitive("scaled_sub", scaled_sub_numpy_impl)
describe_primitive(scaled_add_p, scale_add_tile_translation_ipu)
describe_primitive(scaled_sub_p, scale_sub_tile_translation_ipu)


def scaled_add(a: Array, b: Array, sb: Array) -> Array:
    """A + sb * b."""
    return scaled_add_p.bind(a, b, sb)


def scaled_sub(a: Array, b: Array, sb: Array) -> Array:
    """A - sb * b."""
    return scaled_sub_p.bind(a, b, sb)


# -- filled ----------------------------------------------------------------------------------------


def fill_numpy_impl(shape: Sequence[int], fill_value: float, dtype: DTypeLike) -> np.ndarray:
    return np.full(shape, fill_value, dtype)


def fill_abstract_eval(shape: Sequence[int], fill_value: float, dtype: DTypeLike) -> ShapedArray:
    del fill_value
    return ShapedArray(tuple(shape), np.dtype(dtype))


def ipu_fill_primitive_translation_ipu(
    p: Primitive,
    tiles: Sequence[int],
    inavals: Sequence[ShapedArray],
    attributes: Attributes | None = None,
) -> IpuTileMapEquation:
    """The vertex that writes one number everywhere."""
    del inavals
    values = attributes or {}
    outaval = fill_abstract_eval(values["shape"], values["fill_value"], values["dtype"])
    whole, others = make_ipu_vertex_attributes(**{"in": values["fill_value"]})
    vname = make_ipu_vertex_name_templated("popops::Fill", outaval.dtype)
    outputs = [make_ipu_vertex_out_info("out", outaval)]
    return IpuTileMapEquation(p.name, vname, list(tiles), [], outputs, whole, others)


fill_p = make_primitive(
    "fill", lambda *, shape, dtype, fill_value: jnp.full(shape, fill_value, dtype)
)
describe_primitive(fill_p, ipu_fill_primitive_translation_ipu)


def fill(shape: Sequence[int], fill_value: float, dtype: DTypeLike) -> Array:
    """An array of one number."""
    return fill_p.bind(shape=tuple(shape), fill_value=fill_value, dtype=np.dtype(dtype))


def fill_mlir_translation_default(
    ctx: mlir.LoweringRuleContext, *args: mlir.ir.Value, **params: object
) -> Lowered:
    """The lowering for other backends."""
    return mlir.lower_fun(fill_p.impl, multiple_results=False)(ctx, *args, **params)


rotation2d_p = make_primitive(
    "rotation2d",
    lambda cs, inrow0, inrow1: [
        cs[0] * inrow0 - cs[1] * inrow1,
        cs[1] * inrow0 + cs[0] * inrow1,
    ],
    multiple_results=True,
)


def tile_copy(input: TileShardedArray) -> TileShardedArray:
    """A separate copy of an array, on the same tiles."""
    return tile_map(lax.copy_p, input)


def tile_fill(
    shape: Sequence[int],
    fill_value: float,
    dtype: DTypeLike,
    tiles: Sequence[int],
) -> TileShardedArray:
    """One number everywhere, on each tile."""
    return tile_map(
        fill_p, tiles=tiles, shape=tuple(shape), dtype=np.dtype(dtype), fill_value=fill_value
    )


def tile_sharded_identity(dtype: DTypeLike, tiles: Sequence[int]) -> TileShardedArray:
    """The identity matrix, row i on tile tiles[i]."""
    return tile_constant_sharded(np.eye(len(tiles), dtype=dtype), tiles)


def tile_rotation2d(
    cs: TileShardedArray, x: TileShardedArray, y: TileShardedArray
) -> tuple[TileShardedArray, TileShardedArray]:
    """Two vectors rotated by the angle with this cosine and sine."""
    return tile_map(rotation2d_p, cs, x, y)
