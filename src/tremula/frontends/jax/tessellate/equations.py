"""What a primitive is on tiles, described in full: the vertex, its fields, constants, attributes.

`register_ipu_tile_primitive` takes a function that returns such a description, an equation.
`declare_ipu_tile_primitive` is the short way to the same.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Self

import numpy as np
from jax.core import ShapedArray

from tremula.frontends.jax.tessellate.ipu_types import (
    Base64Data,
    IpuShapedArray,
    IpuTensorSlice,
    IpuType,
    JsonForm,
    from_ipu_type_to_numpy_dtype,
    from_numpy_dtype_to_ipu_type,
    get_ipu_type_name,
    json_of,
)

MAX_OVERWRITTEN = 2  # operands of a vertex that TessellateIPU overwrites; Tremula has no limit


def make_ipu_vertex_name_templated(basename: str, *args: object) -> str:
    """Vertex<float,true>: types, numbers and truth values as C++ writes them."""
    names = [_template_argument(value) for value in args]
    return f"{basename}<{','.join(names)}>" if names else basename


def _template_argument(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int) and not isinstance(value, IpuType):
        return str(value).lower()
    if isinstance(value, IpuType | np.dtype) or (
        isinstance(value, type) and issubclass(value, np.generic)
    ):
        return get_ipu_type_name(value)
    raise ValueError(
        f"a template argument is a name, a number, a truth value or a type, got {value!r}."
    )


# -- fields ----------------------------------------------------------------------------------------


class IpuVertexIOType(IntEnum):
    """What a vertex does with a field."""

    In = 0
    Out = 1
    InOut = 2


class IpuVertexIOInfo(JsonForm):
    """A field of a vertex; `slices2d` are its vectors where it is a list of vectors.

    A positive `vertex_dim2` is the length of each vector. -1 marks a field that is one number.
    """

    def __init__(
        self,
        name: str = "",
        iotype: IpuVertexIOType = IpuVertexIOType.In,
        shape: Sequence[int] = (),
        dtype: IpuType = IpuType.UNSIGNED_CHAR,
        vertex_dim2: int = 0,
        constant_data: Base64Data | None = None,
        *,
        aval: IpuShapedArray | None = None,
        slices2d: Sequence[IpuTensorSlice] = (),
        is_scalar: bool = False,
    ):
        self.name, self.iotype = name, IpuVertexIOType(iotype)
        self.aval = aval or IpuShapedArray(list(shape), dtype)
        self.constant_data = constant_data or Base64Data()
        self.slices2d = list(slices2d)
        self.is_scalar = is_scalar or vertex_dim2 < 0
        if vertex_dim2 > 0:
            n_rows = self.aval.size // vertex_dim2
            self.slices2d = IpuTensorSlice.make_tensor2d_slices(n_rows, int(vertex_dim2))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IpuVertexIOInfo) and (self.name, self.iotype, self.aval) == (
            other.name, other.iotype, other.aval)  # fmt: skip

    __hash__ = None  # pyright: ignore[reportAssignmentType] - its fields can change

    def __repr__(self) -> str:
        return (
            f"IpuVertexIOInfo({self.name!r}, {self.iotype.name}, {self.shape}, {self.dtype.name})"
        )

    @property
    def shape(self) -> list[int]:
        return self.aval.shape

    @property
    def dtype(self) -> IpuType:
        return self.aval.dtype

    @property
    def vertex_dim2(self) -> int:
        """The length of each vector of a list of vectors; 0 for other fields."""
        return self.slices2d[0].end - self.slices2d[0].begin if self.slices2d else 0

    @property
    def is_constant_input(self) -> bool:
        return not self.constant_data.is_empty

    @property
    def constant(self) -> np.ndarray:
        """The numbers of a constant."""
        dtype = from_ipu_type_to_numpy_dtype(self.dtype)
        return np.frombuffer(self.constant_data.decoded_bytes, dtype).reshape(self.shape)

    @property
    def shaped(self) -> ShapedArray:
        """As JAX describes it."""
        return ShapedArray(tuple(self.shape), from_ipu_type_to_numpy_dtype(self.dtype))

    @classmethod
    def _from_json(cls, value: Any) -> Self:
        return cls(
            value["name"],
            value["iotype"],
            constant_data=Base64Data._from_json(value["constant_data"]),
            aval=IpuShapedArray._from_json(value["aval"]),
            slices2d=[IpuTensorSlice._from_json(one) for one in value["slices2d"]],
            is_scalar=value.get("is_scalar", False),
        )


def make_ipu_vertex_io_info(
    name: str, iotype: IpuVertexIOType, aval: ShapedArray, vertex_dim2: int = 0
) -> IpuVertexIOInfo:
    """A field with the shape and type of an array of JAX or NumPy."""
    kind = from_numpy_dtype_to_ipu_type(aval.dtype)
    return IpuVertexIOInfo(name, iotype, aval.shape, kind, int(vertex_dim2))


def make_ipu_vertex_constant_info(name: str, data: object, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    """A field with the same numbers on every tile."""
    data = np.asarray(data)
    kind = from_numpy_dtype_to_ipu_type(data.dtype)
    encoded = Base64Data.from_decoded_data(data.tobytes())
    return IpuVertexIOInfo(name, IpuVertexIOType.In, data.shape, kind, int(vertex_dim2), encoded)


def make_ipu_vertex_in_info(name: str, aval: ShapedArray, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    """A field that is read."""
    return make_ipu_vertex_io_info(name, IpuVertexIOType.In, aval, vertex_dim2)


def make_ipu_vertex_out_info(name: str, aval: ShapedArray, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    """A field that is written."""
    return make_ipu_vertex_io_info(name, IpuVertexIOType.Out, aval, vertex_dim2)


def make_ipu_vertex_inout_info(
    name: str, aval: ShapedArray, vertex_dim2: int = 0
) -> IpuVertexIOInfo:
    """A field that is read and written."""
    return make_ipu_vertex_io_info(name, IpuVertexIOType.InOut, aval, vertex_dim2)


def _infos(
    avals: Mapping[str, ShapedArray],
    own: IpuVertexIOType,
    both: Collection[str],
    dims2: Mapping[str, int],
) -> list[IpuVertexIOInfo]:
    return [
        make_ipu_vertex_io_info(
            name, IpuVertexIOType.InOut if name in both else own, aval, dims2.get(name, 0)
        )
        for name, aval in avals.items()
    ]


def make_ipu_vertex_inputs(
    inavals: Mapping[str, ShapedArray],
    inout_names: Collection[str] = (),
    vertex_dims2: Mapping[str, int] | None = None,
) -> list[IpuVertexIOInfo]:
    """Fields that are read; those of `inout_names` are written, too."""
    return _infos(inavals, IpuVertexIOType.In, inout_names, vertex_dims2 or {})


def make_ipu_vertex_outputs(
    outavals: Mapping[str, ShapedArray],
    inout_names: Collection[str] = (),
    vertex_dims2: Mapping[str, int] | None = None,
) -> list[IpuVertexIOInfo]:
    """Fields that are written; those of `inout_names` are read, too."""
    return _infos(outavals, IpuVertexIOType.Out, inout_names, vertex_dims2 or {})


# -- attributes ------------------------------------------------------------------------------------


@dataclass
class IpuVertexAttributeI32(JsonForm):
    """An integer that a vertex has as a field."""

    name: str = ""
    value: int = 0


@dataclass
class IpuVertexAttributeF32(JsonForm):
    """A number that a vertex has as a field."""

    name: str = ""
    value: float = 0.0


def make_ipu_vertex_attributes(
    **kwargs: object,
) -> tuple[list[IpuVertexAttributeI32], list[IpuVertexAttributeF32]]:
    """Integers and others: fields of a vertex that are not edges."""
    whole, others = [], []
    for name, value in kwargs.items():
        if isinstance(value, int | np.integer | np.bool_):
            whole.append(IpuVertexAttributeI32(name, int(value)))
        elif isinstance(value, float | np.floating):
            others.append(IpuVertexAttributeF32(name, float(value)))
        else:
            raise TypeError(
                f"the vertex attribute {name} is a number, got {value!r} ({type(value).__name__})."
            )
    return whole, others


# -- equations -------------------------------------------------------------------------------------


@dataclass
class IpuTileMapEquation(JsonForm):
    """One vertex on each tile."""

    pname: str = ""
    vname: str = ""
    tiles: list[int] = field(default_factory=list)
    inputs_info: list[IpuVertexIOInfo] = field(default_factory=list)
    outputs_info: list[IpuVertexIOInfo] = field(default_factory=list)
    attributes_i32: list[IpuVertexAttributeI32] = field(default_factory=list)
    attributes_f32: list[IpuVertexAttributeF32] = field(default_factory=list)
    tmp_space_name: str = ""
    tmp_space_aval: IpuShapedArray = field(default_factory=lambda: IpuShapedArray([0]))
    gp_filename: str | Path | type = ""
    perf_estimate: int = 0
    sync: bool = False

    def __post_init__(self) -> None:
        self.tiles = [int(tile) for tile in self.tiles]
        for name in ("inputs_info", "outputs_info", "attributes_i32", "attributes_f32"):
            setattr(self, name, list(getattr(self, name)))
        self.gp_filename = self.gp_filename or ""

    @property
    def use_tmp_space(self) -> bool:
        return self.tmp_space_aval.size > 0

    @property
    def num_inputs(self) -> int:
        return len(self.inputs_info)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs_info)

    @property
    def num_inouts(self) -> int:
        return sum(info.iotype is IpuVertexIOType.InOut for info in self.inputs_info)

    @property
    def operands(self) -> list[IpuVertexIOInfo]:
        """Inputs that come from the program."""
        return [info for info in self.inputs_info if not info.is_constant_input]

    def _to_json(self) -> Any:
        values = {name: json_of(value) for name, value in vars(self).items()}
        return {**values, "gp_filename": str(self.gp_filename)}

    @classmethod
    def _from_json(cls, value: Any) -> Self:
        read = dict(value)
        for name, kind in (
            ("inputs_info", IpuVertexIOInfo),
            ("outputs_info", IpuVertexIOInfo),
            ("attributes_i32", IpuVertexAttributeI32),
            ("attributes_f32", IpuVertexAttributeF32),
        ):
            read[name] = [kind._from_json(one) for one in read.get(name, ())]
        if "tmp_space_aval" in read:
            read["tmp_space_aval"] = IpuShapedArray._from_json(read["tmp_space_aval"])
        return cls(**read)
