"""Which PopLibs vertex TessellateIPU runs for a primitive of JAX, as a description.

Tremula's compiler chooses vertices by itself: these descriptions are what programs ask for, by
`get_ipu_tile_primitive_translation`, to look at them or to change them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive

from tremula.codelets.spec import N_WORKERS
from tremula.frontends.jax.tessellate.equations import (
    IpuTileMapEquation,
    IpuVertexIOInfo,
    make_ipu_vertex_attributes,
    make_ipu_vertex_constant_info,
    make_ipu_vertex_in_info,
    make_ipu_vertex_inout_info,
    make_ipu_vertex_name_templated,
    make_ipu_vertex_out_info,
)
from tremula.frontends.jax.tessellate.ipu_types import get_ipu_type_name
from tremula.frontends.jax.tessellate.registry import (
    describe_primitive,
    primitive_num_inout_alias_args,
)

Tiles = Sequence[int]
Avals = Sequence[ShapedArray]
Attributes = Mapping[str, Any] | None
Fields = tuple[list[IpuVertexIOInfo], list[IpuVertexIOInfo]]

UNARY = {
    "abs": "ABSOLUTE", "asin": "ASIN", "atan": "ATAN", "cbrt": "CBRT", "ceil": "CEIL", "cos": "COS",
    "erf": "ERF", "exp": "EXPONENT", "expm1": "EXPONENT_MINUS_ONE", "floor": "FLOOR",
    "is_finite": "IS_FINITE", "log": "LOGARITHM", "log1p": "LOGARITHM_ONE_PLUS", "neg": "NEGATE",
    "not": "BITWISE_NOT", "population_count": "POPCOUNT", "round": "ROUND", "rsqrt": "RSQRT",
    "sign": "SIGNUM", "sin": "SIN", "sqrt": "SQRT", "tan": "TAN", "tanh": "TANH",
}  # fmt: skip
BINARY = {
    "add": "ADD", "and": "BITWISE_AND", "atan2": "ATAN2", "div": "DIVIDE", "eq": "EQUAL",
    "ge": "GREATER_THAN_EQUAL", "gt": "GREATER_THAN", "le": "LESS_THAN_EQUAL", "lt": "LESS_THAN",
    "max": "MAXIMUM", "min": "MINIMUM", "mul": "MULTIPLY", "ne": "NOT_EQUAL", "or": "BITWISE_OR",
    "pow": "POWER", "rem": "REMAINDER", "shift_left": "SHIFT_LEFT",
    "shift_right_arithmetic": "SHIFT_RIGHT_SIGN_EXTEND", "shift_right_logical": "SHIFT_RIGHT",
    "sub": "SUBTRACT", "xor": "BITWISE_XOR",
}  # fmt: skip
REDUCED = {"sum": "ReduceAdd", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceMul",
           "or": "ReduceOr", "and": "ReduceAnd"}  # fmt: skip
SCATTERED = {"scatter-add": "ADD", "scatter-min": "MIN", "scatter-max": "MAX", "scatter-mul": "MUL"}
CUMULATIVE = {"cumsum": 0, "cummin": 1, "cummax": 2, "cumprod": 3}
_COMPARISONS = {"eq", "ge", "gt", "le", "lt", "ne"}
_POWERS = {-1: "INVERSE", 2: "SQUARE"}


def _equation(
    p: Primitive, tiles: Tiles, vname: str, fields: Fields, **attributes: object
) -> IpuTileMapEquation:
    whole, others = make_ipu_vertex_attributes(**attributes)
    return IpuTileMapEquation(p.name, vname, list(tiles), *fields, whole, others)


def _plain_name(p: Primitive) -> str:
    return p.name.removesuffix("_inplace")


def _chosen(table: Mapping[Any, str], key: object, what: str) -> str:
    if key not in table:
        raise ValueError(f"TessellateIPU has {what} {sorted(table)}, got {key!r}.")
    return table[key]


# -- element-wise ----------------------------------------------------------------------------------


def make_unary1d_vertex_fullname(basename: str, dtype: object, inplace: bool) -> str:
    kind = "UnaryOp1DInPlace" if inplace else "UnaryOp1D"
    name = f"popops::expr::UnaryOpType::{basename}"
    return make_ipu_vertex_name_templated(f"popops::{kind}", name, get_ipu_type_name(dtype))


def make_unary1d_vertex_io_infos(inaval: ShapedArray, inplace: bool) -> Fields:
    if inplace:
        both = make_ipu_vertex_inout_info("inOut", inaval)
        return [both], [both]
    return [make_ipu_vertex_in_info("in", inaval)], [make_ipu_vertex_out_info("out", inaval)]


def ipu_unary_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex of a function of one array, element by element."""
    del attributes  # such a vertex has none
    (x,) = inavals
    in_place = primitive_num_inout_alias_args(p) > 0
    basename = _chosen(UNARY, _plain_name(p), "vertices for the functions")
    vname = make_unary1d_vertex_fullname(basename, x.dtype, in_place)
    return _equation(p, tiles, vname, make_unary1d_vertex_io_infos(x, in_place))


def make_binary1d_vertex_fullname(basename: str, dtype: object, inplace: bool = False) -> str:
    kind = "BinaryOp1DInPlace" if inplace else "BinaryOp1D"
    name = f"popops::expr::BinaryOpType::{basename}"
    return make_ipu_vertex_name_templated(f"popops::{kind}", name, get_ipu_type_name(dtype))


def make_binary1d_vertex_io_infos(inavals: Avals, outaval: ShapedArray, inplace: bool) -> Fields:
    second = make_ipu_vertex_in_info("in2", inavals[1])
    if inplace:
        outputs = [make_ipu_vertex_inout_info("in1Out", outaval)]
        return [make_ipu_vertex_inout_info("in1Out", inavals[0]), second], outputs
    inputs = [make_ipu_vertex_in_info("in1", inavals[0]), second]
    return inputs, [make_ipu_vertex_out_info("out", outaval)]


def ipu_binary_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex of a function of two arrays, element by element."""
    del attributes
    x, _ = inavals
    name, in_place = _plain_name(p), primitive_num_inout_alias_args(p) > 0
    basename = _chosen(BINARY, name, "vertices for the functions")
    outaval = ShapedArray(x.shape, np.bool_ if name in _COMPARISONS else x.dtype)
    vname = make_binary1d_vertex_fullname(basename, x.dtype, in_place)
    fields = make_binary1d_vertex_io_infos(inavals, outaval, in_place)
    return _equation(p, tiles, vname, fields)


def make_scale_op_vertex_fullname(basename: str, dtype: object) -> str:
    kind = get_ipu_type_name(dtype)
    return make_ipu_vertex_name_templated(f"popops::{basename}", kind, kind, kind, False)


def scale_op_tile_translation_ipu(
    p: Primitive, vertex_name: str, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex that adds a scaled array to another, in place."""
    del attributes
    a, b, scale = inavals
    if a.shape != b.shape or a.dtype != b.dtype or scale.size != 1:
        raise ValueError(
            f"{p.name} takes two arrays of one shape and type and a number, got {a}, {b}, {scale}."
        )
    inputs = [
        make_ipu_vertex_inout_info("A", a),
        make_ipu_vertex_in_info("B", b),
        make_ipu_vertex_in_info("scaleB", scale),
    ]
    fields = inputs, [make_ipu_vertex_inout_info("A", a)]
    return _equation(p, tiles, vertex_name, fields, size=a.size)


def scale_add_tile_translation_ipu(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    vname = make_scale_op_vertex_fullname("ScaledAddSupervisor", inavals[0].dtype)
    return scale_op_tile_translation_ipu(p, vname, tiles, inavals, attributes)


def scale_sub_tile_translation_ipu(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    vname = make_scale_op_vertex_fullname("ScaledSubtractSupervisor", inavals[0].dtype)
    return scale_op_tile_translation_ipu(p, vname, tiles, inavals, attributes)


def _of_three(
    p: Primitive, tiles: Tiles, avals: Avals, vertex: str, names: str
) -> IpuTileMapEquation:
    """Fields of vertices whose operands are lists of vectors of one element."""
    inputs = [
        make_ipu_vertex_in_info(name, aval, vertex_dim2=1)
        for name, aval in zip(names.split(), avals, strict=True)
    ]
    shaped = avals[1]
    fields = inputs, [make_ipu_vertex_out_info("out", shaped, vertex_dim2=1)]
    return _equation(p, tiles, make_ipu_vertex_name_templated(vertex, shaped.dtype), fields)


def ipu_select_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex that chooses between two arrays, element by element."""
    del attributes
    return _of_three(p, tiles, inavals, "popops::Select", "in3 in1 in2")


def ipu_clamp_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex that limits elements to a range."""
    del attributes
    return _of_three(p, tiles, inavals, "popops::Clamp", "in2 in1 in3")


def make_cast1d_vertex_fullname(indtype: object, outdtype: object) -> str:
    names = get_ipu_type_name(indtype), get_ipu_type_name(outdtype)
    return make_ipu_vertex_name_templated("popops::Cast1D", *names)


def ipu_cast_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex that converts elements to another type."""
    (x,) = inavals
    outaval = ShapedArray(x.shape, np.dtype((attributes or {})["new_dtype"]))
    fields = [make_ipu_vertex_in_info("src", x)], [make_ipu_vertex_out_info("dst", outaval)]
    vname = make_cast1d_vertex_fullname(x.dtype, outaval.dtype)
    return _equation(p, tiles, vname, fields, numElems=x.size)


def ipu_integer_pow_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex of a square or an inverse. `tile_map` takes every power."""
    (x,) = inavals
    basename = _chosen(_POWERS, (attributes or {})["y"], "vertices for the powers")
    vname = make_unary1d_vertex_fullname(basename, x.dtype, inplace=False)
    return _equation(p, tiles, vname, make_unary1d_vertex_io_infos(x, inplace=False))


# -- arrays ----------------------------------------------------------------------------------------


def _without_vertex(
    p: Primitive, tiles: Tiles, inaval: ShapedArray, outaval: ShapedArray
) -> IpuTileMapEquation:
    """An empty name is no vertex: the result is the operand, seen in another way."""
    fields = [make_ipu_vertex_inout_info("x", inaval)], [make_ipu_vertex_inout_info("x", outaval)]
    return _equation(p, tiles, "", fields)


def ipu_reshape_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The operand in another shape."""
    (x,), values = inavals, attributes or {}
    if values.get("dimensions") is not None:
        raise NotImplementedError(
            "TessellateIPU's `reshape` takes no `dimensions`: transpose before."
        )
    return _without_vertex(p, tiles, x, ShapedArray(tuple(values["new_sizes"]), x.dtype))


def ipu_bitcast_convert_type_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The bits of the operand as another type."""
    (x,), dtype = inavals, np.dtype((attributes or {})["new_dtype"])
    return _without_vertex(p, tiles, x, ShapedArray(x.shape, dtype))


def ipu_iota_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex that counts."""
    del inavals
    values = attributes or {}
    outaval = ShapedArray(tuple(values["shape"]), np.dtype(values["dtype"]))
    if len(outaval.shape) != 1 or values.get("dimension", 0):
        raise ValueError(f"TessellateIPU's `iota` has one dimension, got {outaval}.")
    inputs = [make_ipu_vertex_constant_info("offsets", np.zeros(1, outaval.dtype))]
    outputs = [make_ipu_vertex_out_info("out", outaval, vertex_dim2=outaval.shape[0])]
    vname = make_ipu_vertex_name_templated("popops::Iota", outaval.dtype)
    return _equation(p, tiles, vname, (inputs, outputs))


def ipu_tile_memcpy(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex that copies an array on its tile."""
    del attributes
    (x,) = inavals
    fields = make_unary1d_vertex_io_infos(x, inplace=False)
    vname = make_ipu_vertex_name_templated("TileMemcpyVertex", x.dtype)
    equation = _equation(p, tiles, vname, fields)
    equation.perf_estimate = x.size * np.dtype(x.dtype).itemsize
    return equation


def make_continuous_reduce_vertex_fullname(
    reduce_p: Primitive, partial_dtype: object, out_dtype: object, is_update: bool = False
) -> str:
    name = _chosen(REDUCED, reduce_p.name.removeprefix("reduce_"), "vertices for the reductions")
    kinds = get_ipu_type_name(partial_dtype), get_ipu_type_name(out_dtype)
    basename = "popops::ContinuousReduce"
    return make_ipu_vertex_name_templated(basename, f"popops::{name}", *kinds, is_update)


def ipu_reduce_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex that reduces the last axes. `tile_map` reduces any."""
    (x,) = inavals
    axes = tuple(sorted((attributes or {})["axes"]))
    if not axes or axes != tuple(range(axes[0], len(x.shape))):
        raise NotImplementedError(
            f"TessellateIPU's vertex for `{p.name}` reduces the last axes, got {axes} of {x.shape}."
        )
    left, reduced = x.shape[: axes[0]], x.shape[axes[0] :]
    outputs = [make_ipu_vertex_out_info("out", ShapedArray(left, x.dtype))]
    vname = make_continuous_reduce_vertex_fullname(p, x.dtype, x.dtype)
    fields = [make_ipu_vertex_in_info("partials", x)], outputs
    counts = {"numOutputsM1": int(np.prod(left)) - 1, "numPartials": int(np.prod(reduced))}
    return _equation(p, tiles, vname, fields, **counts)


def ipu_cumop_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex of a running sum, product, minimum or maximum of a vector."""
    (x,), values = inavals, attributes or {}
    if len(x.shape) != 1 or values.get("axis", 0) or values.get("reverse", False):
        raise ValueError(
            f"TessellateIPU's vertex for `{p.name}` takes a vector, forwards, got {x}."
        )
    vname = make_ipu_vertex_name_templated("tl::CumulativeOp", x.dtype, CUMULATIVE[p.name])
    equation = _equation(p, tiles, vname, make_unary1d_vertex_io_infos(x, inplace=False))
    equation.perf_estimate = x.size * 6
    return equation


# -- rows by their numbers -------------------------------------------------------------------------


def make_gather_vertex_fullname(dtype: object) -> str:
    return make_ipu_vertex_name_templated("popops::MultiSlice", get_ipu_type_name(dtype))


def check_gather_dimension_numbers(dimension_numbers: object, inshape: Sequence[int]) -> None:
    """TessellateIPU's vertex takes rows of the first axis."""
    wanted = lax.GatherDimensionNumbers(tuple(range(1, len(inshape))), (0,), (0,))
    if dimension_numbers != wanted:
        raise NotImplementedError(
            f"TessellateIPU's vertex for `gather` takes {wanted}, got {dimension_numbers}."
        )


def ipu_gather_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex that reads rows by their numbers."""
    operand, indices = inavals
    check_gather_dimension_numbers((attributes or {})["dimension_numbers"], operand.shape)
    _check_indices(p, indices)
    outaval = ShapedArray((indices.shape[0], *operand.shape[1:]), operand.dtype)
    inputs = [
        make_ipu_vertex_in_info("baseT", operand), make_ipu_vertex_in_info("offsets", indices),
    ]  # fmt: skip
    fields = inputs, [make_ipu_vertex_out_info("subT", outaval)]
    return _equation(
        p, tiles, make_gather_vertex_fullname(operand.dtype), fields,
        baseOffset=0, numBaseElements=operand.size, maxElementsPerWorker=operand.size,
        regionSize=int(np.prod(operand.shape[1:])), splitSingleRegion=False,
    )  # fmt: skip


def _check_indices(p: Primitive, indices: ShapedArray) -> None:
    if indices.dtype != np.uint32 or len(indices.shape) != 2:
        raise ValueError(f"TessellateIPU's `{p.name}` takes uint32 indices [n, 1], got {indices}.")


def make_scatter_vertex_fullname(dtype: object, opname: str, scale: object) -> str:
    kind, operation = get_ipu_type_name(dtype), f"popops::Operation::{opname}"
    if scale is None:
        return make_ipu_vertex_name_templated("popops::MultiUpdateOp", kind, False, operation)
    basename = "popops::ScaledMultiUpdateOp"
    return make_ipu_vertex_name_templated(basename, kind, kind, False, operation)


def check_scatter_dimension_numbers(dimension_numbers: object) -> None:
    """TessellateIPU's vertex updates elements of a vector."""
    wanted = lax.ScatterDimensionNumbers((), (0,), (0,))
    if dimension_numbers != wanted:
        raise NotImplementedError(
            f"TessellateIPU's vertex for `scatter` takes {wanted}, got {dimension_numbers}."
        )


def _scattered(p: Primitive, tiles: Tiles, inavals: Avals, vname: str, constants: list,
               attributes: Attributes, **others: object) -> IpuTileMapEquation:  # fmt: skip
    operand, indices, updates = inavals
    check_scatter_dimension_numbers((attributes or {})["dimension_numbers"])
    _check_indices(p, indices)
    inputs = [
        make_ipu_vertex_inout_info("baseT", operand),
        make_ipu_vertex_in_info("offsets", indices),
        make_ipu_vertex_in_info("subT", updates),
        *constants,
    ]
    fields = inputs, [make_ipu_vertex_inout_info("baseT", operand)]
    return _equation(
        p, tiles, vname, fields, baseOffset=0, numBaseElements=operand.size,
        maxElementsPerWorker=-(-operand.size // N_WORKERS), regionSize=1, indicesAreSorted=False,
        **others,
    )  # fmt: skip


def ipu_scatter_op_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex that combines elements with updates."""
    dtype, scale = inavals[0].dtype, 1 if p.name == "scatter-add" else None
    vname = make_scatter_vertex_fullname(dtype, SCATTERED[p.name], scale)
    constants = []
    if scale is not None:
        one = np.array(scale, dtype)
        constants = [make_ipu_vertex_constant_info("scale", one, vertex_dim2=-1)]
    return _scattered(p, tiles, inavals, vname, constants, attributes)


def ipu_scatter_primitive_translation(
    p: Primitive, tiles: Tiles, inavals: Avals, attributes: Attributes = None
) -> IpuTileMapEquation:
    """The vertex that overwrites elements."""
    vname = make_ipu_vertex_name_templated("popops::MultiUpdate", inavals[0].dtype)
    return _scattered(p, tiles, inavals, vname, [], attributes, splitSingleRegion=True)


def _register() -> None:
    rules: dict[Callable[..., IpuTileMapEquation], str] = {
        ipu_unary_primitive_translation: " ".join(UNARY),
        ipu_binary_primitive_translation: " ".join(BINARY),
        ipu_select_primitive_translation: "select_n",
        ipu_clamp_primitive_translation: "clamp",
        ipu_cast_primitive_translation: "convert_element_type",
        ipu_integer_pow_translation: "integer_pow",
        ipu_reshape_primitive_translation: "reshape",
        ipu_bitcast_convert_type_primitive_translation: "bitcast_convert_type",
        ipu_iota_translation: "iota",
        ipu_tile_memcpy: "copy",
        ipu_reduce_primitive_translation: " ".join(f"reduce_{name}" for name in REDUCED),
        ipu_cumop_primitive_translation: " ".join(CUMULATIVE),
        ipu_gather_primitive_translation: "gather",
        ipu_scatter_op_primitive_translation: " ".join(SCATTERED).replace("-", "_"),
        ipu_scatter_primitive_translation: "scatter",
    }
    for translation, names in rules.items():
        for name in names.split():
            describe_primitive(getattr(lax, f"{name}_p"), translation)


_register()
