"""Primitives of TessellateIPU: rows placed on tiles, vertices mapped over them."""

from typing import Any

import jax
import numpy as np
import torch
from jax.core import ShapedArray
from torch import Tensor

from tremula.base.types import as_type
from tremula.frontends.jax.carriers import Value, carrier, is_wrapped
from tremula.frontends.jax.errors import JaxError
from tremula.frontends.jax.evaluate import by_definition
from tremula.frontends.jax.table import Equation, rule
from tremula.frontends.jax.tessellate.equations import IpuTileMapEquation
from tremula.frontends.jax.tessellate.ipu_types import from_ipu_type_to_numpy_dtype
from tremula.frontends.jax.tessellate.primitives import defined, is_vertex
from tremula.ir.ops import tile_random  # noqa: F401  registers tremula::tile_draws
from tremula.ir.ops.explicit_tiles import VertexCall, vertices


@rule("tile_put_sharded")
def put_sharded(eqn: Equation, x: Tensor) -> Tensor:
    return torch.ops.tremula.on_tiles(x, list(eqn.params["tiles"]))


@rule("tile_put_replicated")
def put_replicated(eqn: Equation, x: Tensor) -> Tensor:
    return torch.ops.tremula.on_tiles(x.expand(eqn.shape), list(eqn.params["tiles"]))


@rule("tile_gather")
def gather(eqn: Equation, x: Tensor) -> Tensor:
    rows = torch.cat([x[i : i + 1] for i in eqn.params["indices"]])
    return torch.ops.tremula.on_tiles(rows, list(eqn.params["tiles"]))


@rule("tile_data_barrier")
def barrier(eqn: Equation, *arrays: Tensor) -> list[Value]:
    """The program is a sequence of steps already, which all tiles take together."""
    sizes = {np.dtype(aval.dtype).itemsize for aval in eqn.in_avals}
    if len(sizes) > 1:
        names = sorted({np.dtype(aval.dtype).name for aval in eqn.in_avals})
        raise TypeError(
            f"Only supporting dtypes of same size in Tile data barrier, got {', '.join(names)}."
        )
    return list(arrays)


@rule("ipu_hw_cycle_count")
def cycle_count(eqn: Equation, *arrays: Tensor) -> list[Value]:
    return list(torch.ops.tremula.tile_cycles(list(arrays), list(eqn.params["tiles"])))


@rule("tile_random_uniform", "tile_random_normal")
def draws(eqn: Equation) -> Tensor:
    """From the generator of the machine that runs it: a tile's own, or PyTorch's."""
    params, tiles = eqn.params, list(eqn.params["tiles"])
    is_normal = eqn.name == "tile_random_normal"
    drawn = torch.ops.tremula.tile_draws(tiles, params["size"], is_normal)
    is_whole = params["dtype"] == "int32"
    if not is_normal and not is_whole:  # the hardware's floats are around their offset
        drawn = drawn - 0.5
    values = drawn * params["second"] + params["first"]
    if is_whole:
        values = torch.floor(values)
    return torch.ops.tremula.on_tiles(values.to(carrier(eqn.dtype)), tiles)


@rule("tile_get_hw_seeds")
def seeds(eqn: Equation) -> Tensor:
    return torch.ops.tremula.tile_seeds(list(eqn.params["tiles"]), eqn.params["n_workers"])


@rule("tile_set_hw_seeds")
def set_seeds(eqn: Equation, values: Tensor) -> Tensor:
    return torch.ops.tremula.set_tile_seeds(values, list(eqn.params["tiles"]))


_SCALED = {"scaled_add": 1.0, "scaled_sub": -1.0}  # one vertex, as on the hardware


@rule("tile_map")
def tile_map(eqn: Equation, *rows: Tensor) -> list[Value]:
    """A custom vertex on each tile; or a primitive of JAX on all rows, results on their tiles."""
    primitive, attributes = eqn.params["mapped"], dict(eqn.params["attributes"])
    if hasattr(primitive, "vertex"):
        return list(vertices(rows, _call(eqn, primitive.vertex, attributes)))
    if is_vertex(primitive):
        return _translated(eqn, primitive, attributes, rows)
    if primitive.name in _SCALED and _is_scaled_sum(*rows):
        x, y, scale = rows
        scale = scale.reshape(-1, *[1] * (x.dim() - 1))
        result = torch.ops.tremula.scaled_add(x, y, scale, _SCALED[primitive.name])
        return [torch.ops.tremula.on_tiles(result, list(eqn.params["tiles"]))]

    def one(*values: jax.Array) -> Any:  # noqa: ANN401
        return defined(primitive, *values, **attributes)

    mapped = jax.vmap(one, axis_size=len(eqn.params["tiles"]))
    result = by_definition(mapped, eqn.in_avals, rows)
    tiles = list(eqn.params["tiles"])
    return [torch.ops.tremula.on_tiles(x, tiles) for x in result]


def _is_scaled_sum(x: Tensor, y: Tensor, scale: Tensor) -> bool:
    """Whether there is one number for each tile, and all is of one type."""
    return x.shape == y.shape and scale.numel() == len(x) and x.dtype == y.dtype == scale.dtype


def _call(eqn: Equation, vertex: Any, attributes: dict[str, Any]) -> VertexCall:  # noqa: ANN401
    """The arguments and results of this equation's vertex on one tile."""
    if len(eqn.in_avals) != len(vertex.inputs):
        raise JaxError(
            f"the vertex {vertex.name!r} takes {len(vertex.inputs)} operands"
            f" ({', '.join(vertex.inputs)}), got {len(eqn.in_avals)}."
        )
    avals = [ShapedArray(aval.shape[1:], aval.dtype) for aval in eqn.in_avals]
    outputs, constants, temporary, _ = vertex.described(avals)
    of_field = dict(zip(vertex.inputs, avals, strict=True)) | dict(outputs) | dict(temporary)
    names = {name: as_type(np.dtype(aval.dtype)).spelling for name, aval in of_field.items()}
    return VertexCall(
        vertex.codelets,
        vertex.name.format(**names),
        tuple(eqn.params["tiles"]),
        vertex.inputs,
        {name: (tuple(a.shape), carrier(a.dtype)) for name, a in outputs.items()},
        {name: np.asarray(value) for name, value in constants.items()},
        {name: (tuple(a.shape), carrier(a.dtype)) for name, a in temporary.items()},
        attributes,
        {name: names[name] for name, aval in of_field.items() if is_wrapped(aval.dtype)},
    )


def _translated(
    eqn: Equation,
    primitive: Any,  # noqa: ANN401
    attributes: dict[str, Any],
    rows: tuple[Tensor, ...],
) -> list[Value]:
    """The vertex that a registered function describes."""
    tiles = tuple(eqn.params["tiles"])
    avals = [ShapedArray(aval.shape[1:], aval.dtype) for aval in eqn.in_avals]
    result: IpuTileMapEquation = primitive.ipu_translation(primitive, tiles, avals, attributes)
    operands = result.operands
    if len(operands) != len(rows):
        raise JaxError(
            f"the vertex {result.vname!r} of {result.pname!r} takes {len(operands)} operands, got"
            f" {len(rows)}."
        )
    shaped = [
        row.reshape(len(tiles), -1, info.vertex_dim2) if info.vertex_dim2 else row
        for row, info in zip(rows, operands, strict=True)
    ]
    temporary = {}
    if result.tmp_space_name:
        space, dtype = result.tmp_space_aval, result.tmp_space_aval.dtype
        temporary[result.tmp_space_name] = (
            tuple(space.shape), carrier(from_ipu_type_to_numpy_dtype(dtype)),
        )  # fmt: skip
    fields = [*result.inputs_info, *result.outputs_info]
    call = VertexCall(
        result.gp_filename,
        result.vname,
        tiles,
        tuple(info.name for info in operands),
        {
            info.name: (tuple(info.shape), carrier(info.shaped.dtype))
            for info in result.outputs_info
        },
        {i.name: i.constant for i in result.inputs_info if i.is_constant_input},
        temporary,
        {one.name: one.value for one in (*result.attributes_i32, *result.attributes_f32)},
        {info.name: info.dtype.cpp_name for info in fields if is_wrapped(info.shaped.dtype)},
    )
    return list(vertices(shaped, call))
