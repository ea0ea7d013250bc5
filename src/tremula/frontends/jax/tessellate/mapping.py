"""`tile_map`: a primitive of JAX or a custom vertex on every tile; how vertices are declared."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive

from tremula.frontends.jax.tessellate.arrays import TileShardedArray
from tremula.frontends.jax.tessellate.equations import (
    IpuTileMapEquation,
    make_ipu_vertex_attributes,
    make_ipu_vertex_constant_info,
    make_ipu_vertex_inputs,
    make_ipu_vertex_outputs,
)
from tremula.frontends.jax.tessellate.ipu_types import get_ipu_type_name, make_ipu_shaped_array
from tremula.frontends.jax.tessellate.parameters import Array, Attributes, canonical
from tremula.frontends.jax.tessellate.primitives import (
    NotTileSharded,
    cycle_count_p,
    is_vertex,
    make_primitive,
    map_p,
)
from tremula.frontends.jax.tessellate.registry import describe_primitive

# outputs, constants and temporary space by the names of the vertex's fields, a guess of cycles
Shapes = Mapping[str, ShapedArray]
Described = tuple[Shapes, Mapping[str, Array] | None, Shapes | None, int]
FullyDescribed = tuple[Shapes, Mapping[str, Array], Shapes, int]


@dataclass(frozen=True)
class CustomVertex:
    """A custom vertex: its codelet, and a function that says what its arguments and results are."""

    name: str  # `{x}` in it is the type of field x
    codelets: str | Path | type
    inputs: tuple[str, ...]
    describe: Callable[..., Described]

    def described(self, avals: Sequence[ShapedArray]) -> FullyDescribed:
        outputs, constants, temporary, estimate = self.describe(*avals)
        return outputs, constants or {}, temporary or {}, estimate

    def translation(
        self,
        p: Primitive,
        tiles: Sequence[int],
        inavals: Sequence[ShapedArray],
        attributes: Attributes | None = None,
    ) -> IpuTileMapEquation:
        """The description of the vertex in full."""
        outputs, constants, temporary, estimate = self.described(inavals)
        operands = dict(zip(self.inputs, inavals, strict=True))
        both = [name for name in self.inputs if name in outputs]
        types = {name: get_ipu_type_name(aval.dtype) for name, aval in operands.items()}
        whole, others = make_ipu_vertex_attributes(**(attributes or {}))
        equation = IpuTileMapEquation(
            p.name,
            self.name.format(**types),
            list(tiles),
            make_ipu_vertex_inputs(operands, both)
            + [make_ipu_vertex_constant_info(name, data) for name, data in constants.items()],
            make_ipu_vertex_outputs(outputs, both),
            whole,
            others,
            gp_filename=self.codelets,
            perf_estimate=estimate,
        )
        for name, aval in temporary.items():
            equation.tmp_space_name = name
            equation.tmp_space_aval = make_ipu_shaped_array(aval.shape, aval.dtype)
        return equation


def check_tile_mapping_consistency(args: Sequence[TileShardedArray]) -> None:
    """All arrays are on the same tiles, row by row."""
    for other in args[1:]:
        if other.tiles != args[0].tiles:
            raise ValueError(
                f"Inconsistent tile mapping between input arrays: {args[0].tiles} vs {other.tiles}."
            )


def check_in_out_arguments(inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Fields that are read and written come first, in one order among operands and results."""
    both = [name for name in inputs if name in outputs]
    for name in both:
        if list(inputs).index(name) != list(outputs).index(name):
            raise IndexError(
                f"Inconsistent TessellateIPU inplace in/out indices: {list(inputs).index(name)} vs"
                f" {list(outputs).index(name)} for the field {name!r}."
            )
    if both != list(inputs[: len(both)]):
        raise ValueError(
            f"In/out arguments should be at the first vertex arguments, got {both} among"
            f" {list(inputs)}."
        )


def tile_map(primitive: Primitive | None, *args: TileShardedArray, **attributes: Any) -> Any:
    """Run a primitive on every tile with the rows it holds.

        y = tile_map(jax.lax.add_p, x0, x1)

    `tiles` says where, if there are no operands; `sync` lets tiles wait for each other before.
    """
    tiles, sync = attributes.pop("tiles", None), bool(attributes.pop("sync", False))
    if not all(isinstance(one, TileShardedArray) for one in args):
        raise NotTileSharded("Tile map inputs must be `TileShardedArray` instances.")
    if primitive is None:
        return tuple(args)
    if primitive is hw_cycle_count_p:
        return ipu_cycle_count(*args, sync=sync)
    check_tile_mapping_consistency(args)
    if not args and not tiles:
        raise ValueError(f"tile_map of {primitive.name} without operands needs tiles=(…).")
    tiles = tuple(int(tile) for tile in tiles) if tiles else args[0].tiles
    if not is_vertex(primitive):  # attributes for the hardware choose what the compiler chooses
        attributes = {n: value for n, value in attributes.items() if not n.startswith("ipu_")}
    result = map_p.bind(
        *(one.array for one in args),
        mapped=primitive,
        attributes=canonical(attributes),
        tiles=tiles,
        sync=sync,
    )
    results = tuple(TileShardedArray(x, tiles) for x in result)
    return results if primitive.multiple_results or len(results) != 1 else results[0]


tile_map_primitive = tile_map  # its older name


def declare_ipu_tile_primitive(
    vname: str, gp_filename: str | Path | type | None = None
) -> Callable:
    """Declare a vertex as a primitive for `tile_map`.

        @declare_ipu_tile_primitive("Demo<{x}>", gp_filename="demo_vertex.cpp")
        def demo_p(x: ShapedArray):
            return {"out": x}, {"scale": np.ones(4)}, {"tmp": x}, 100

    The function's arguments are fields of the vertex, and get the shapes and types of its operands.
    It returns fields for results, constants and temporary space, and an estimate of cycles, which
    is not used: cycles are the codelet's. A class of `tremula.Vertex` may stand for the file.
    """

    def declare(describe: Callable[..., Described]) -> Primitive:
        name = describe.__name__.removesuffix("_p")
        return create_ipu_tile_primitive_v2(name, vname, describe, gp_filename)

    return declare


def create_ipu_tile_primitive_v2(
    pname: str, vname: str, initializer_fn: Callable, gp_filename: str | Path | type | None = None
) -> Primitive:
    """Declare a vertex as a primitive for `tile_map`, with a function instead of a decorator.

    Fields that are operands and results come first in both, in one order: the vertex overwrites
    them.
    """
    inputs = tuple(inspect.signature(initializer_fn).parameters)
    codelets = gp_filename or ""
    if isinstance(codelets, str | Path):
        _check_file(pname, codelets)
    made = CustomVertex(vname, codelets, inputs, initializer_fn)
    primitive = Primitive(pname)
    primitive.vertex = made  # pyright: ignore[reportAttributeAccessIssue]
    primitive.def_impl(_without_reference(pname))
    primitive.def_abstract_eval(partial(_vertex_shapes, primitive, made))
    describe_primitive(primitive, made.translation)
    return primitive


def _vertex_shapes(
    primitive: Primitive, vertex: CustomVertex, *avals: ShapedArray, **_: object
) -> ShapedArray | tuple[ShapedArray, ...]:
    """What a vertex says that it returns."""
    outputs = tuple(vertex.described(avals)[0].values())
    primitive.multiple_results = len(outputs) > 1
    return outputs if primitive.multiple_results else outputs[0]


def _check_file(name: str, codelets: str | Path) -> None:
    if "{" not in str(codelets) and not Path(codelets).is_file():
        raise FileNotFoundError(
            f"the codelet file {str(codelets)!r} of the tile primitive {name!r} does not exist."
        )


def _without_reference(name: str) -> Callable:
    def fail(*_values: object, **_attributes: object) -> NoReturn:
        raise NotImplementedError(
            f"the tile primitive {name!r} runs on tiles only: JAX has no implementation of it."
            f" Give one with {name}_p.def_impl(function)."
        )

    fail.is_missing = True  # pyright: ignore[reportFunctionMemberAccess]
    return fail


def create_ipu_tile_primitive(  # noqa: PLR0917 - the original's signature
    pname: str,
    vname: str,
    inputs: Sequence[str],
    outputs: Mapping[str, int | ShapedArray],
    constants: Mapping[str, Callable] | None = None,
    tmp_space: int | ShapedArray | None = None,
    gp_filename: str | Path | None = None,
    perf_estimate: int = 0,
) -> Primitive:
    """A vertex whose results are shaped like operands (their numbers) or as given."""

    def describe(*avals: ShapedArray) -> Described:
        made = {name: avals[one] if isinstance(one, int) else one for name, one in outputs.items()}
        values = {
            name: function(avals, tuple(made.values()), {})
            for name, function in (constants or {}).items()
        }
        temporary = {}
        if tmp_space is not None:
            temporary["tmp"] = avals[tmp_space] if isinstance(tmp_space, int) else tmp_space
        return made, values, temporary, perf_estimate

    describe.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in inputs]
    )
    primitive = create_ipu_tile_primitive_v2(pname, vname, describe, gp_filename)
    primitive.multiple_results = len(outputs) > 1
    return primitive


# -- the clock -------------------------------------------------------------------------------------


def hw_cycle_count_numpy_impl(arg: Array) -> list[Array]:
    """Outside of a program the clock stands at 0."""
    return [arg, np.zeros(2, np.uint32)]


def hw_cycle_count_abstract_eval(arg: ShapedArray) -> tuple[ShapedArray, ShapedArray]:
    return ShapedArray(arg.shape, arg.dtype), ShapedArray((2,), np.dtype(np.uint32))


hw_cycle_count_p = make_primitive(
    "hw_cycle_count", lambda arg: [arg, jnp.zeros(2, jnp.uint32)], multiple_results=True
)
hw_cycle_count_p.def_impl(hw_cycle_count_numpy_impl)


def hw_cycle_count(arg: Array) -> list[Array]:
    """An array and the clock."""
    return hw_cycle_count_p.bind(arg)


def hw_cycle_count_tile_translation_ipu(
    p: Primitive,
    tiles: Sequence[int],
    inavals: Sequence[ShapedArray],
    attributes: Attributes | None = None,
) -> IpuTileMapEquation:
    """TessellateIPU's vertex that reads the clock. The compiler has a step for it instead."""
    del attributes
    (x,) = inavals
    outputs = {"data": x, "out": ShapedArray((2,), np.dtype(np.uint32))}
    return IpuTileMapEquation(
        p.name, "CycleCountBarrier", list(tiles),
        make_ipu_vertex_inputs({"data": x}, {"data"}), make_ipu_vertex_outputs(outputs, {"data"}),
    )  # fmt: skip


describe_primitive(hw_cycle_count_p, hw_cycle_count_tile_translation_ipu)


def ipu_cycle_count(*args: TileShardedArray, sync: bool = False) -> tuple:  # noqa: ARG001
    """The arrays, and the modelled clock of each tile when they are there: (low, high) words.

    Tiles are in step, so that all have the same clock. It stands at 0 on the host.
    """
    tiles = args[0].tiles
    *arrays, counts = cycle_count_p.bind(*(one.array for one in args), tiles=tiles)
    saved = [TileShardedArray(x, one.tiles) for x, one in zip(arrays, args, strict=True)]
    return (*saved, TileShardedArray(counts, tiles))


ipu_hw_cycle_count = ipu_cycle_count


def ipu_cycle_count_overhead() -> int:
    """Cycles that reading the clock takes: none, it is the model's."""
    return 0
