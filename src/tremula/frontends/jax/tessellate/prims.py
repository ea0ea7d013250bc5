"""The parts of TessellateIPU's own primitives under their names: as called, computed and shaped.

Each primitive has a function that binds it, one that computes it outside of programs, one for its
shape, and one that lowers it for other backends of JAX. Lowering for "ipu" is Tremula's front end.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from tremula.frontends.jax.tessellate.ipu_types import Base64Data, IpuShapedArray, JsonForm
from tremula.frontends.jax.tessellate.parameters import Array, Attributes, Lowered, canonical
from tremula.frontends.jax.tessellate.primitives import (
    InconsistentTiles,
    barrier_p,
    check_rows,
    gather_p,
    map_p,
    put,
    put_replicated_p,
    put_sharded_p,
)
from tremula.frontends.jax.tessellate.registry import get_ipu_tile_primitive_translation

Tiles = Sequence[int]


def _tuple(tiles: Tiles) -> tuple[int, ...]:
    return tuple(int(tile) for tile in tiles)


def _lowered(
    primitive: Primitive,
    ctx: mlir.LoweringRuleContext,
    args: Sequence[mlir.ir.Value],
    **params: object,
) -> Lowered:
    """The lowering of a primitive for the host, which is that of its definition."""
    function = mlir.lower_fun(primitive.impl, primitive.multiple_results)
    return function(ctx, *args, **params)


def make_tiles_raw_attributes(tiles: Tiles) -> str:
    """Tiles as JSON."""
    return json.dumps(_tuple(tiles))


# -- rows on tiles ---------------------------------------------------------------------------------


def tile_put_sharded_prim(x: Array, tiles: Tiles) -> Array:
    return put(put_sharded_p, x, _tuple(tiles))


def tile_put_sharded_prim_impl(x: Array, tiles: Tiles) -> Array:
    check_rows(x, tiles)
    return x


def tile_put_sharded_prim_abstract_eval(xs: ShapedArray, tiles: Tiles) -> ShapedArray:
    check_rows(xs, tiles)
    return xs


def tile_put_sharded_prim_mlir_lowering_default(
    ctx: mlir.LoweringRuleContext, xc: mlir.ir.Value, tiles: Tiles
) -> Lowered:
    return _lowered(put_sharded_p, ctx, [xc], tiles=_tuple(tiles))


def tile_put_replicated_prim(x: Array, tiles: Tiles) -> Array:
    return put(put_replicated_p, x, _tuple(tiles))


def tile_put_replicated_prim_impl(x: Array, tiles: Tiles) -> Array:
    return np.stack([x] * len(tiles))


def tile_put_replicated_prim_abstract_eval(
    xs: ShapedArray | np.ndarray, tiles: Tiles
) -> ShapedArray:
    return ShapedArray((len(tiles), *xs.shape), xs.dtype)


def tile_put_replicated_prim_mlir_translation_default(
    ctx: mlir.LoweringRuleContext, *args: mlir.ir.Value, **params: Any
) -> Lowered:
    return _lowered(put_replicated_p, ctx, args, **params)


def tile_gather_prim(x: Array, previous_tiles: Tiles, indices: Tiles, tiles: Tiles) -> Array:
    del previous_tiles  # the compiler knows where rows are
    return gather_p.bind(x, indices=_tuple(indices), tiles=_tuple(tiles), copy=False)


def tile_gather_prim_impl(x: Array, previous_tiles: Tiles, indices: Tiles, tiles: Tiles) -> Array:
    del previous_tiles, tiles
    return x[np.asarray(indices)]


def tile_gather_prim_abstract_eval(
    xs: ShapedArray, previous_tiles: Tiles, indices: Tiles, tiles: Tiles
) -> ShapedArray:
    del previous_tiles, indices
    return ShapedArray((len(tiles), *xs.shape[1:]), xs.dtype)


def tile_gather_prim_mlir_lowering_default(
    ctx: mlir.LoweringRuleContext,
    xc: mlir.ir.Value,
    previous_tiles: Tiles,
    indices: Tiles,
    tiles: Tiles,
) -> Lowered:
    del previous_tiles
    places = {"indices": _tuple(indices), "tiles": _tuple(tiles)}
    return _lowered(gather_p, ctx, [xc], **places, copy=False)


# -- barriers --------------------------------------------------------------------------------------


def tile_data_barrier_prim(inputs: Sequence[Array], inputs_tiles: Sequence[Tiles]) -> list[Array]:
    return barrier_p.bind(*inputs, tiles=tuple(_tuple(tiles) for tiles in inputs_tiles))


def tile_data_barrier_prim_impl(*args: Array, **params: object) -> tuple:
    del params
    return args


def tile_data_barrier_prim_abstract_eval(*args: ShapedArray, **params: object) -> tuple:
    del params
    return args


def tile_data_barrier_prim_mlir_lowering_default(
    ctx: mlir.LoweringRuleContext, *args: mlir.ir.Value, **params: object
) -> Lowered:
    return _lowered(barrier_p, ctx, args, tiles=params.get("tiles", params.get("inputs_tiles")))


def tile_data_barrier_refdtype(dtype: np.typing.DTypeLike, is_half_accurate: bool) -> np.dtype:
    """The unsigned type of as many bits; float16 itself where it is computed as float32."""
    kind = np.dtype(dtype)
    if kind == np.float16 and not is_half_accurate:
        return kind
    return np.dtype(f"uint{kind.itemsize * 8}")


# -- constants -------------------------------------------------------------------------------------


def _numpy(data: object) -> np.ndarray:
    if not isinstance(data, np.ndarray):
        raise InconsistentTiles(f"a constant is an array of NumPy, got {type(data).__name__}.")
    return data


def tile_constant_replicated_prim(data: np.ndarray, tiles: Tiles) -> Array:
    return tile_put_replicated_prim(_numpy(data), tiles)


def tile_constant_replicated_prim_impl(dummy: object, data: np.ndarray, tiles: Tiles) -> Array:
    del dummy
    return tile_put_replicated_prim_impl(data, tiles)


def tile_constant_replicated_prim_abstract_eval(
    dummy: object, data: np.ndarray, tiles: Tiles
) -> ShapedArray:
    del dummy
    return tile_put_replicated_prim_abstract_eval(data, tiles)


def _constant(
    ctx: mlir.LoweringRuleContext, args: Sequence[mlir.ir.Value], value: Array
) -> Lowered:
    return mlir.lower_fun(lambda *_: jax.numpy.asarray(value), False)(ctx, *args)


def tile_constant_replicated_prim_mlir_translation_default(
    ctx: mlir.LoweringRuleContext, *args: mlir.ir.Value, **params: Any
) -> Lowered:
    return _constant(ctx, args, tile_put_replicated_prim_impl(params["data"], params["tiles"]))


def tile_constant_sharded_prim(data: np.ndarray, tiles: Tiles) -> Array:
    return tile_put_sharded_prim(_numpy(data), tiles)


def tile_constant_sharded_prim_impl(dummy: object, data: np.ndarray, tiles: Tiles) -> Array:
    del dummy
    return tile_put_sharded_prim_impl(data, tiles)


def tile_constant_sharded_prim_abstract_eval(
    dummy: object, data: np.ndarray, tiles: Tiles
) -> ShapedArray:
    del dummy
    check_rows(data, tiles)
    return ShapedArray(data.shape, data.dtype)


def tile_constant_sharded_prim_mlir_translation_default(
    ctx: mlir.LoweringRuleContext, *args: mlir.ir.Value, **params: Any
) -> Lowered:
    return _constant(ctx, args, params["data"])


# -- vertices, by the names of their primitives ----------------------------------------------------


def tile_map_remove_ipu_attributes(attributes: Attributes) -> dict[str, Any]:
    """Without those that begin with `ipu_`: they are for the hardware."""
    return {name: value for name, value in attributes.items() if not name.startswith("ipu_")}


def get_tile_map_ipu_arguments(**kwargs: Any) -> tuple[str, tuple[int, ...], str]:
    """The primitive's name, the tiles, and the equation as JSON."""
    return kwargs["pname"], kwargs["tiles"], kwargs["tile_map_eqn_json"]


def get_primitive_arguments(params: Attributes) -> dict[str, Any]:
    """The parameters of the primitive itself."""
    own = {"pname", "tiles", "tile_map_eqn_json"}
    left = {name: value for name, value in params.items() if name not in own}
    return tile_map_remove_ipu_attributes(left)


def _map_parameters(params: Attributes) -> dict[str, Any]:
    pname, tiles, _ = get_tile_map_ipu_arguments(**params)
    primitive, _ = get_ipu_tile_primitive_translation(pname)
    attributes = canonical(get_primitive_arguments(params))
    return {"mapped": primitive, "attributes": attributes, "tiles": _tuple(tiles), "sync": False}


def tile_map_equation_call_multi_out(
    inputs: Sequence[Array], pname: str, tiles: Tiles, tile_map_eqn_json: str, **kwargs: object
) -> list[Array]:
    """A registered primitive on each tile, all its results."""
    own = {"pname": pname, "tiles": tiles, "tile_map_eqn_json": tile_map_eqn_json}
    return map_p.bind(*inputs, **_map_parameters({**own, **kwargs}))


def tile_map_equation_call_single_out(
    inputs: Sequence[Array], pname: str, tiles: Tiles, tile_map_eqn_json: str, **kwargs: object
) -> Array:
    """A registered primitive on each tile, its result."""
    (result,) = tile_map_equation_call_multi_out(inputs, pname, tiles, tile_map_eqn_json, **kwargs)
    return result


def tile_map_equation_call_impl(*args: Array, **params: object) -> Array | tuple[Array, ...]:
    return _one_or_all(params, map_p.impl(*args, **_map_parameters(params)))


def tile_map_equation_call_abstract_eval(
    *args: ShapedArray, **params: object
) -> ShapedArray | tuple[ShapedArray, ...]:
    shapes = map_p.abstract_eval(*args, **_map_parameters(params))[0]
    return _one_or_all(params, shapes)


def _one_or_all(params: Attributes, results: Sequence) -> Any:
    primitive, _ = get_ipu_tile_primitive_translation(params["pname"])
    return tuple(results) if primitive.multiple_results else results[0]


def tile_map_equation_call_mlir_translation_default(
    ctx: mlir.LoweringRuleContext, *args: mlir.ir.Value, **params: object
) -> Lowered:
    return _lowered(map_p, ctx, args, **_map_parameters(params))


# -- what the compiled core takes of the primitives above ------------------------------------------


@dataclass
class TileGatherParams(JsonForm):
    """Which rows go where."""

    previous_tiles: list[int] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    tiles: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            setattr(self, name, [int(value) for value in values])


@dataclass
class TileDataBarrierParams(JsonForm):
    """The tiles of all arrays that a barrier waits for."""

    vname: str = ""
    inputs_tiles: list[list[int]] = field(default_factory=list)
    max_tile: int = 0


@dataclass
class TileConstantParams(JsonForm):
    """A constant and its tiles."""

    aval: IpuShapedArray = field(default_factory=IpuShapedArray)
    tiles: list[int] = field(default_factory=list)
    data: Base64Data = field(default_factory=Base64Data)

    @classmethod
    def _from_json(cls, value: dict) -> "TileConstantParams":
        aval, data = IpuShapedArray(**value["aval"]), Base64Data._from_json(value["data"])
        return cls(aval, value["tiles"], data)
