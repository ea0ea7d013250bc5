"""TessellateIPU's descriptions of the vertices that multiply matrices on a tile.

`tile_map(dot_general_p, ...)` multiplies matrices of every shape: the compiler chooses the unit.
These are the arguments of the two vertices that TessellateIPU uses, as programs build them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from numpy.typing import DTypeLike

from tremula.codelets.spec import N_WORKERS
from tremula.frontends.jax.tessellate.equations import (
    IpuTileMapEquation,
    IpuVertexAttributeI32,
    IpuVertexIOInfo,
    make_ipu_vertex_constant_info,
    make_ipu_vertex_in_info,
    make_ipu_vertex_name_templated,
    make_ipu_vertex_out_info,
)
from tremula.frontends.jax.tessellate.parameters import Attributes, canonical
from tremula.frontends.jax.tessellate.registry import describe_primitive
from tremula.frontends.jax.tessellate.workers import make_num_elements_per_worker


class IpuConvVertexType(IntEnum):
    """Which unit of a tile multiplies matrices; accepted, since the compiler chooses."""

    Automatic = 0
    ConvPartial1x1 = 1
    ConvPartialHMAC = 2


def _checked_types(fp: DTypeLike, accumulated: DTypeLike) -> tuple[np.dtype, np.dtype]:
    kinds = np.dtype(fp), np.dtype(accumulated)
    if not set(kinds) <= {np.dtype(np.float16), np.dtype(np.float32)} or kinds[0] > kinds[1]:
        names = " and ".join(kind.name for kind in kinds)
        raise ValueError(
            f"a tile multiplies float16 or float32 and adds in no narrower type, got {names}."
        )
    return kinds


@dataclass
class _Vertex:
    """What the descriptions of both vertices have: types, and whether offsets have 16 bits."""

    fp_dtype: np.dtype
    accum_dtype: np.dtype
    use_limited_ver: bool = True

    def __post_init__(self) -> None:
        self.fp_dtype, self.accum_dtype = _checked_types(self.fp_dtype, self.accum_dtype)

    @property
    def worklist_dtype(self) -> type[np.integer]:
        return np.uint16 if self.use_limited_ver else np.uint32

    @property
    def worklist_num_field_dtype(self) -> type[np.integer]:
        return np.int16 if self.use_limited_ver else np.int32


@dataclass
class IpuConvPartial1x1StaticArgs(_Vertex):
    """Template arguments of the vertex of the matrix unit."""

    use_128bit_load: bool = True
    num_conv_units: int = 0
    conv_input_load_elems: int = 0
    disable_sr: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.num_conv_units = 16 if self.accum_dtype == np.float16 else 8
        if not self.conv_input_load_elems:
            self.conv_input_load_elems = 2 if self.fp_dtype == np.float32 else 4

    @property
    def vertex_name(self) -> str:
        return make_ipu_vertex_name_templated(
            "poplin::ConvPartial1x1Out", self.fp_dtype, self.accum_dtype, self.use_limited_ver,
            self.use_128bit_load, self.num_conv_units, self.conv_input_load_elems, self.disable_sr,
        )  # fmt: skip


@dataclass
class IpuConvPartialHMACStaticArgs(_Vertex):
    """Template arguments of the vertex that multiplies without the matrix unit."""

    @property
    def vertex_name(self) -> str:
        return make_ipu_vertex_name_templated(
            "poplin::ConvPartialHorizontalMac", self.fp_dtype, self.accum_dtype,
            self.use_limited_ver,
        )  # fmt: skip


@dataclass
class _ProductSizes:
    """Sizes of a product as a convolution."""

    num_conv_groups: int
    num_out_groups: int
    num_in_groups: int
    out_stride: int
    in_stride: int
    out_chans_per_group: int
    in_chans_per_group: int
    out_flip: bool

    _MULTIPLE = 8

    def __post_init__(self) -> None:
        if self.out_stride != 1 or self.in_stride != 1:
            raise ValueError(f"strides are 1, got {self.out_stride} and {self.in_stride}.")
        for name in self._multiples():
            if getattr(self, name) % self._MULTIPLE:
                raise ValueError(
                    f"{name} is a multiple of {self._MULTIPLE}, got {getattr(self, name)}."
                )

    def _multiples(self) -> tuple[str, ...]:
        return "in_chans_per_group", "out_chans_per_group"

    def _attributes(self, out_stride: int, in_stride: int) -> dict[str, int]:
        return {
            "numConvGroupsM1": self.num_conv_groups - 1,
            "numOutGroupsM1": self.num_out_groups - 1,
            "numInGroups": self.num_in_groups,
            "transformedOutStride": out_stride,
            "transformedInStride": in_stride,
            "outChansPerGroup": self.out_chans_per_group,
            "inChansPerGroup": self.in_chans_per_group,
        }


@dataclass
class IpuConvPartial1x1Args(_ProductSizes):
    """Arguments of the vertex of the matrix unit."""


@dataclass
class IpuConvPartialHMACArgs(_ProductSizes):
    """Arguments of the vertex that multiplies without the matrix unit."""

    zeros_info: int
    kernel_size: int

    _MULTIPLE = 2

    def _multiples(self) -> tuple[str, ...]:
        if (self.num_conv_groups, self.num_in_groups, self.num_out_groups) != (1, 1, 1):
            raise ValueError("this vertex has one group of each kind.")
        return ("in_chans_per_group",)


def _listed(attributes: Mapping[str, int]) -> list[IpuVertexAttributeI32]:
    return [IpuVertexAttributeI32(name, int(value)) for name, value in attributes.items()]


def make_conv_partial1x1_attributes(
    static_args: IpuConvPartial1x1StaticArgs, args: IpuConvPartial1x1Args
) -> list[IpuVertexAttributeI32]:
    """Fields of the matrix unit's vertex; its strides are encoded."""
    wanted = 8 if static_args.fp_dtype == np.float32 else 16
    if args.in_chans_per_group != wanted:
        raise ValueError(
            f"`in_chans_per_group` is {wanted} for {static_args.fp_dtype.name}, got"
            f" {args.in_chans_per_group}."
        )
    is_float = static_args.accum_dtype == np.float32
    out_stride = ipuGetTransformedOutStride(
        args.out_stride, args.out_chans_per_group, static_args.num_conv_units, is_float,
        args.out_flip,
    )  # fmt: skip
    in_stride = ipuGetTransformedInStride(
        0, args.in_stride, 0, static_args.conv_input_load_elems, args.in_chans_per_group
    )
    return _listed(args._attributes(out_stride, in_stride))


def make_conv_partial1x1_worklist_entry(
    out_offset: int, num_field_elems: int, in_offset: int, worklist_dtype: DTypeLike
) -> np.ndarray:
    """The work of one worker of the matrix unit."""
    return _entry((out_offset, num_field_elems, in_offset), (0, -3, 0), worklist_dtype)


def _entry(values: Sequence[int], least: Sequence[int], dtype: DTypeLike) -> np.ndarray:
    if any(value < limit for value, limit in zip(values, least, strict=True)):
        raise ValueError(f"an entry of a work list is at least {tuple(least)}, got {values}.")
    return np.array(values, np.int64).astype(dtype)


def make_conv_partial1x1_worklists(
    N: int,  # noqa: N803
    num_workers: int,
    in_base_offset: int,
    out_base_offset: int,
    worklist_dtype: DTypeLike,
) -> np.ndarray:
    """The work of all workers, one after another: rows in turn, three fewer than there are."""
    counts = make_num_elements_per_worker(N, num_workers)
    begins = np.concatenate([[0], np.cumsum(counts)])
    entries = [
        make_conv_partial1x1_worklist_entry(
            int(begin) * out_base_offset, int(n) - 3, int(begin) * in_base_offset, worklist_dtype
        )
        for begin, n in zip(begins, counts, strict=False)
    ]
    return np.stack(entries).ravel()


def make_conv_partial_hmac_attributes(
    static_args: IpuConvPartialHMACStaticArgs, args: IpuConvPartialHMACArgs
) -> list[IpuVertexAttributeI32]:
    """Fields of the vertex without the matrix unit."""
    del static_args  # its types change no field
    out_stride = (args.out_stride - 1) * args.out_chans_per_group
    in_stride = (args.in_stride - 1) * args.in_chans_per_group
    own = {"kernelSizeM1": args.kernel_size - 1, "zerosInfo": args.zeros_info}
    return _listed({**args._attributes(out_stride, in_stride), **own})


def make_conv_partial_hmac_worklist_entry(
    out_offset: int, num_conv: int, in_offset: int, worklist_dtype: DTypeLike
) -> np.ndarray:
    """The work of one worker without the matrix unit."""
    return _entry((out_offset, num_conv, in_offset), (0, 0, 0), worklist_dtype)


# -- strides as the matrix unit's vertices hold them -----------------------------------------------


def ipuGetTransformedInStride(  # noqa: N802 - names of the compiled core, here and below
    convUnitWeightHeight: int, inStride: int, inRowStride: int, convInputLoadElems: int,  # noqa: N803
    inChansPerGroup: int,  # noqa: N803
) -> int:  # fmt: skip
    """Loads between the inputs of two results, counted from the end of the first."""
    rows = inStride - 1 - (convUnitWeightHeight - 1) * inRowStride
    return rows * (inChansPerGroup // convInputLoadElems) + 1


def ipuReverseTransformedInStride(  # noqa: N802
    transformedInStride: int, convInputLoadElems: int, inChansPerGroup: int,  # noqa: N803
    ampKernelHeight: int = 1, inRowStride: int = 0,  # noqa: N803
) -> int:  # fmt: skip
    """The inverse of `ipuGetTransformedInStride`."""
    loads = (transformedInStride - 1) * convInputLoadElems // inChansPerGroup
    return loads + 1 + (ampKernelHeight - 1) * inRowStride


def ipuGetTransformedInRowStride(  # noqa: N802
    inRowStride: int, convInputLoadElems: int, inChansPerGroup: int  # noqa: N803
) -> int:  # fmt: skip
    """Loads between two rows of inputs."""
    return (inRowStride - 1) * (inChansPerGroup // convInputLoadElems) + 1


def ipuReverseTransformedInRowStride(  # noqa: N802
    transformedInRowStride: int, convInputLoadElems: int, inChansPerGroup: int  # noqa: N803
) -> int:  # fmt: skip
    """The inverse of `ipuGetTransformedInRowStride`."""
    return (transformedInRowStride - 1) * convInputLoadElems // inChansPerGroup + 1


def _threshold(is_float: bool, n_units: int) -> int:
    """What a stride is counted from; two matrix units take eight elements more."""
    return (-6 if is_float else -4) - (8 if n_units > 8 else 0)


def ipuGetTransformedOutStride(  # noqa: N802
    outStride: int, outChansPerGroup: int, numConvUnitsRequired: int, isPartialsFloat: bool,  # noqa: N803
    flipOut: bool,  # noqa: N803
) -> int:  # fmt: skip
    """Elements between two results, backwards if they are flipped."""
    scaled = outStride * outChansPerGroup
    return _threshold(isPartialsFloat, numConvUnitsRequired) + (-scaled if flipOut else scaled)


def ipuReverseTransformedOutStride(  # noqa: N802
    transformedOutStride: int, accumTypeIsFloat: bool, numConvUnits: int, outChansPerGroup: int  # noqa: N803
) -> tuple[bool, int]:  # fmt: skip
    """The inverse of `ipuGetTransformedOutStride`: whether results are flipped, their stride."""
    scaled = transformedOutStride - _threshold(accumTypeIsFloat, numConvUnits)
    return scaled < 0, abs(scaled) // outChansPerGroup


# -- descriptions ----------------------------------------------------------------------------------


def _product(
    inavals: Sequence[ShapedArray], attributes: Attributes
) -> tuple[ShapedArray, np.dtype]:
    """What a product of two operands over their last axes is, and what it is added up in."""
    lhs, rhs = inavals
    dimensions = dict(canonical(attributes))["dimension_numbers"]
    last = ((len(lhs.shape) - 1,), (len(rhs.shape) - 1,))
    if dimensions != (last, ((), ())) or lhs.dtype != rhs.dtype:
        raise ValueError(
            f"TessellateIPU's vertices multiply over the last axes, got {lhs}, {rhs}, {dimensions}."
        )
    dtype = np.dtype(attributes.get("preferred_element_type") or lhs.dtype)
    return ShapedArray((*lhs.shape[:-1], *rhs.shape[:-1]), dtype), dtype


def _described(
    p: Primitive,
    tiles: Sequence[int],
    avals: Sequence[ShapedArray],
    vname: str,
    worklists: IpuVertexIOInfo,
    fields: list[IpuVertexAttributeI32],
) -> IpuTileMapEquation:
    lhs, rhs, out = avals
    inputs = [
        make_ipu_vertex_in_info("in", lhs, vertex_dim2=lhs.size),
        make_ipu_vertex_in_info("weights", rhs, vertex_dim2=rhs.size),
        worklists,
    ]
    outputs = [make_ipu_vertex_out_info("out", out, vertex_dim2=out.size)]
    return IpuTileMapEquation(p.name, vname, list(tiles), inputs, outputs, fields)


def ipu_dot_general_conv_1x1_primitive_translation(
    p: Primitive, tiles: Sequence[int], inavals: Sequence[ShapedArray], attributes: Attributes
) -> IpuTileMapEquation:
    """The vertex of the matrix unit: 8 (float32) or 16 (float16) elements along the last axis."""
    out, dtype = _product(inavals, attributes)
    lhs = inavals[0]
    static = IpuConvPartial1x1StaticArgs(lhs.dtype, dtype)
    args = IpuConvPartial1x1Args(1, 1, 1, 1, 1, out.shape[-1], lhs.shape[-1], False)
    in_offset = lhs.shape[-1] * static.fp_dtype.itemsize // 8
    out_offset = out.shape[-1] * static.accum_dtype.itemsize // 8
    work = make_conv_partial1x1_worklists(
        lhs.shape[0], N_WORKERS, in_offset, out_offset, static.worklist_dtype
    )
    worklists = make_ipu_vertex_constant_info("worklists", work)
    fields = make_conv_partial1x1_attributes(static, args)
    return _described(p, tiles, (*inavals, out), static.vertex_name, worklists, fields)


def ipu_dot_general_conv_hmac_primitive_translation(
    p: Primitive, tiles: Sequence[int], inavals: Sequence[ShapedArray], attributes: Attributes
) -> IpuTileMapEquation:
    """The vertex without the matrix unit, for two vectors."""
    out, dtype = _product(inavals, attributes)
    if out.shape:
        raise ValueError(f"this vertex multiplies two vectors, got {inavals[0]} and {inavals[1]}.")
    static = IpuConvPartialHMACStaticArgs(inavals[0].dtype, dtype)
    args = IpuConvPartialHMACArgs(1, 1, 1, 1, 1, 1, inavals[0].shape[-1], False, 1, 1)
    work = make_conv_partial_hmac_worklist_entry(0, 1, 0, static.worklist_dtype)
    worklists = make_ipu_vertex_constant_info("worklists", work, vertex_dim2=3)
    fields = make_conv_partial_hmac_attributes(static, args)
    return _described(p, tiles, (*inavals, out), static.vertex_name, worklists, fields)


def ipu_dot_general_primitive_translation(
    p: Primitive,
    tiles: Sequence[int],
    inavals: Sequence[ShapedArray],
    attributes: Attributes | None = None,
) -> IpuTileMapEquation:
    """The vertex that `ipu_vertex_type` names; the matrix unit's by default."""
    options = dict(attributes or {})
    kind = IpuConvVertexType(options.pop("ipu_vertex_type", IpuConvVertexType.Automatic))
    if kind is IpuConvVertexType.ConvPartialHMAC:
        return ipu_dot_general_conv_hmac_primitive_translation(p, tiles, inavals, options)
    return ipu_dot_general_conv_1x1_primitive_translation(p, tiles, inavals, options)


describe_primitive(lax.dot_general_p, ipu_dot_general_primitive_translation)
