"""What a primitive is on tiles, said in full: the vertex, its fields, constants and attributes.

`register_ipu_tile_primitive` takes a function that gives such a description, an equation.
`declare_ipu_tile_primitive` is the short way to the same.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from jax.core import ShapedArray

from tremula.base.errors import suggest
from tremula.frontends.jax.errors import JaxError


class IpuType(Enum):
    """Types of elements on tiles; the value is the C++ name, and the type of NumPy."""

    BOOL = ("bool", "bool")
    UNSIGNED_CHAR = ("unsigned char", "uint8")
    UNSIGNED_SHORT = ("unsigned short", "uint16")
    UNSIGNED_INT = ("unsigned int", "uint32")
    CHAR = ("signed char", "int8")
    SHORT = ("short", "int16")
    INT = ("int", "int32")
    HALF = ("half", "float16")
    FLOAT = ("float", "float32")

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.value[1])


_OF_NUMPY = {kind.dtype: kind for kind in IpuType}


def from_numpy_dtype_to_ipu_type(v: Any) -> IpuType:
    if isinstance(v, IpuType):
        return v
    if np.dtype(v) not in _OF_NUMPY:
        known = [dtype.name for dtype in _OF_NUMPY]
        raise JaxError(
            f"tiles have no elements of type {np.dtype(v).name}.",
            hint=suggest(np.dtype(v).name, known),
        )
    return _OF_NUMPY[np.dtype(v)]


def from_ipu_type_to_numpy_dtype(v: Any) -> np.dtype:
    return v.dtype if isinstance(v, IpuType) else np.dtype(v)


def get_ipu_type_name(v: object) -> str:
    """The C++ name of a type, as names of vertices contain it."""
    return from_numpy_dtype_to_ipu_type(v).value[0]


def make_ipu_shaped_array(shape: Sequence[int], dtype: object) -> ShapedArray:
    return ShapedArray(tuple(shape), from_ipu_type_to_numpy_dtype(dtype))


def make_ipu_vertex_name_templated(basename: str, *args: object) -> str:
    """Vertex<float,true>: types, numbers and truth values as C++ writes them."""
    names = []
    for value in args:
        if isinstance(value, str):
            names.append(value)
        elif isinstance(value, bool | int):
            names.append(str(value).lower())
        else:
            names.append(get_ipu_type_name(value))
    return f"{basename}<{','.join(names)}>" if names else basename


# -- fields ----------------------------------------------------------------------------------------


class IpuVertexIOType(Enum):
    """What a vertex does with a field."""

    In = 0
    Out = 1
    InOut = 2


@dataclass(frozen=True)
class IpuVertexIOInfo:
    """A field of a vertex; `vertex_dim2` is the length of each vector in a list of vectors."""

    name: str
    iotype: IpuVertexIOType
    shape: tuple[int, ...]
    dtype: IpuType
    vertex_dim2: int = 0
    constant_data: np.ndarray | None = None

    @property
    def aval(self) -> ShapedArray:
        return ShapedArray(tuple(self.shape), self.dtype.dtype)


def make_ipu_vertex_io_info(
    name: str, iotype: IpuVertexIOType, aval: Any, vertex_dim2: int = 0
) -> IpuVertexIOInfo:
    kind = from_numpy_dtype_to_ipu_type(aval.dtype)
    return IpuVertexIOInfo(name, iotype, tuple(aval.shape), kind, int(vertex_dim2))


def make_ipu_vertex_constant_info(name: str, data: object, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    """A field with the same numbers on every tile."""
    data = np.asarray(data)
    kind = from_numpy_dtype_to_ipu_type(data.dtype)
    return IpuVertexIOInfo(name, IpuVertexIOType.In, data.shape, kind, vertex_dim2, data)


def make_ipu_vertex_in_info(name: str, aval: object, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    return make_ipu_vertex_io_info(name, IpuVertexIOType.In, aval, vertex_dim2)


def make_ipu_vertex_out_info(name: str, aval: object, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    return make_ipu_vertex_io_info(name, IpuVertexIOType.Out, aval, vertex_dim2)


def make_ipu_vertex_inout_info(name: str, aval: object, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    return make_ipu_vertex_io_info(name, IpuVertexIOType.InOut, aval, vertex_dim2)


def _infos(
    avals: Mapping[str, Any], own: IpuVertexIOType, both: Collection[str], dims2: Mapping[str, int]
) -> list[IpuVertexIOInfo]:
    return [
        make_ipu_vertex_io_info(
            name, IpuVertexIOType.InOut if name in both else own, aval, dims2.get(name, 0)
        )
        for name, aval in avals.items()
    ]


def make_ipu_vertex_inputs(
    inavals: Mapping[str, Any],
    inout_names: Collection[str] = (),
    vertex_dims2: Mapping[str, int] | None = None,
) -> list[IpuVertexIOInfo]:
    """Fields that are read; those of `inout_names` are written, too."""
    return _infos(inavals, IpuVertexIOType.In, inout_names, vertex_dims2 or {})


def make_ipu_vertex_outputs(
    outavals: Mapping[str, Any],
    inout_names: Collection[str] = (),
    vertex_dims2: Mapping[str, int] | None = None,
) -> list[IpuVertexIOInfo]:
    """Fields that are written; those of `inout_names` are read, too."""
    return _infos(outavals, IpuVertexIOType.Out, inout_names, vertex_dims2 or {})


# -- attributes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IpuVertexAttributeI32:
    name: str
    value: int


@dataclass(frozen=True)
class IpuVertexAttributeF32:
    name: str
    value: float


def make_ipu_vertex_attributes(
    **kwargs: object,
) -> tuple[list[IpuVertexAttributeI32], list[IpuVertexAttributeF32]]:
    """Integers and others: fields of a vertex that are not edges."""
    whole, others = [], []
    for name, value in kwargs.items():
        if isinstance(value, int | np.integer):
            whole.append(IpuVertexAttributeI32(name, int(value)))
        elif isinstance(value, float | np.floating):
            others.append(IpuVertexAttributeF32(name, float(value)))
        else:
            raise TypeError(
                f"the vertex attribute {name} is a number, got {value!r} ({type(value).__name__})."
            )
    return whole, others


@dataclass(frozen=True)
class IpuTileMapEquation:
    """One vertex on each tile."""

    vname: str
    pname: str
    tiles: tuple[int, ...]
    inputs_info: Sequence[IpuVertexIOInfo] = ()
    outputs_info: Sequence[IpuVertexIOInfo] = ()
    attributes_i32: Sequence[IpuVertexAttributeI32] = ()
    attributes_f32: Sequence[IpuVertexAttributeF32] = ()
    tmp_space_name: str = ""
    tmp_space_aval: Any = None
    gp_filename: Any = ""
    perf_estimate: int = 0
    sync: bool = False

    @property
    def operands(self) -> list[IpuVertexIOInfo]:
        """Inputs that come from the program."""
        return [info for info in self.inputs_info if info.constant_data is None]


# -- how the workers of a tile share a vector ------------------------------------------------------


def make_num_elements_per_worker(N: int, num_workers: int) -> np.ndarray:  # noqa: N803
    """Elements for each worker, the first ones with one more if they do not divide."""
    whole, rest = divmod(N, num_workers)
    return np.array([whole + (i < rest) for i in range(num_workers)], np.int32)


def _shares(
    size: int, vector_size: int, num_workers: int, allow_overlap: bool, grain_size: int | None
) -> tuple[int, int, int, int]:
    """Vectors of a grain, vectors of a full share, how many have one, elements left over."""
    grain = grain_size or vector_size
    if size % 2 or grain % vector_size or size < grain or (size % grain and not allow_overlap):
        raise ValueError(
            f"{size} elements cannot be split into grains of {grain} elements and vectors of"
            f" {vector_size}: expected an even multiple of the grain."
        )
    n_grains = -(-size // (grain * num_workers))
    n_full = size // (grain * n_grains)
    return grain // vector_size, n_grains * grain // vector_size, n_full, size % (grain * n_grains)


def make_ipu_vector1d_worker_offsets(
    size: int,
    vector_size: int = 2,
    num_workers: int = 6,
    wdtype: Any = np.uint16,
    allow_overlap: bool = False,
    grain_size: int | None = None,
) -> np.ndarray:
    """Where the share of each worker begins, in vectors, and where the last one ends."""
    grain, share, n_full, left = _shares(size, vector_size, num_workers, allow_overlap, grain_size)
    sizes = np.zeros(num_workers, np.int64)
    sizes[:n_full] = share
    if n_full < num_workers:
        sizes[n_full] = left // (grain * vector_size) * grain
    return np.concatenate([[0], np.cumsum(sizes)]).astype(wdtype)


def make_ipu_vector1d_worker_offsets_and_sizes(
    size: int,
    vector_size: int = 2,
    num_workers: int = 6,
    wdtype: Any = np.uint16,
    allow_overlap: bool = False,
    grain_size: int | None = None,
) -> np.ndarray:
    """(first vector, number of vectors) of each worker; the last may overlap the one before."""
    grain, share, n_full, left = _shares(size, vector_size, num_workers, allow_overlap, grain_size)
    result = np.zeros((num_workers, 2), np.int64)
    result[:n_full, 0] = share * np.arange(n_full)
    result[:n_full, 1] = share
    if n_full < num_workers:
        last = -(-left // (grain * vector_size)) * grain
        result[n_full] = size // vector_size - last, last
    return result.astype(wdtype)
