"""Lowerings of 8-bit floats and of 4-bit weights. Codes travel as bytes, and are read as floats."""

from math import prod

from tremula.base.floats import N_SCALE_BITS, pack_metadata
from tremula.base.types import FLOAT, HALF, INT, QUARTER, QUARTER_METADATA, UNSIGNED_CHAR
from tremula.ir.lowering.linear.convolutions import convolution_options, params_of
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.lowering.types import tile_type
from tremula.ir.op_table import lowers
from tremula.ir.ops.low_precision import quarter_format
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poplin, popops, poputil


def _metadata(tiles: Tiles, is_143: bool, scale: int) -> Tensor:
    return tiles.constant(pack_metadata(quarter_format(is_143), scale), QUARTER_METADATA)


def _quarters(tiles: Tiles, codes: Tensor, is_143: bool, scale: int) -> Tensor:
    metadata = _metadata(tiles, is_143, scale)
    return poputil.as_quarter(tiles.graph, codes, metadata, tiles.sequence, tiles.name)


@lowers("tremula::to_float8", calls="popops.cast")
def to_float8(tiles: Tiles, x: Tensor, is_143: bool, scale: int, saturates: bool) -> Tensor:
    """Where they saturate, numbers are clamped before the cast, which has no such choice."""
    if saturates:
        limit = quarter_format(is_143).largest * 2.0**scale
        low, high = (tiles.constant(sign * limit, x.type) for sign in (-1, 1))
        x = popops.clamp(tiles.graph, x, low, high, tiles.sequence, f"{tiles.name}/clamp")
    metadata = _metadata(tiles, is_143, scale)
    codes = popops.cast(tiles.graph, x, QUARTER, tiles.sequence, tiles.name, metadata=metadata)
    return codes.reinterpret(UNSIGNED_CHAR)


@lowers("tremula::from_float8", calls="popops.cast")
def from_float8(tiles: Tiles, codes: Tensor, is_143: bool, scale: int, dtype: object) -> Tensor:
    small = _quarters(tiles, codes, is_143, scale)
    return popops.cast(tiles.graph, small, tile_type(dtype), tiles.sequence, tiles.name)  # pyright: ignore[reportArgumentType]


@lowers("tremula::float8_matmul", calls="poplin.mat_mul_grouped")
def float8_matmul(
    tiles: Tiles, a: Tensor, b: Tensor, are_143: list[bool], scales: list[int]
) -> Tensor:
    left, right = (_quarters(tiles, *each) for each in zip((a, b), are_143, scales, strict=True))
    return _product(tiles, left, right)


def _product(tiles: Tiles, left: Tensor, right: Tensor) -> Tensor:
    """A matrix on the right is one for all rows on the left; else both have the same groups."""
    n_inner, n_cols = right.shape[-2:]
    n_groups = prod(right.shape[:-2])
    left = left.reshape((n_groups, left.n_elems // (n_groups * n_inner), n_inner))
    right = right.reshape((n_groups, n_inner, n_cols))
    memory = {k: v for k, v in tiles.product_options().items() if k != "partials_type"}
    out = poplin.mat_mul_grouped(tiles.graph, left, right, tiles.sequence, tiles.name, **memory)
    return out.reshape(tiles.out_shape)


@lowers("tremula::float8_matmul_scaled", calls="poplin.mat_mul_grouped")
def float8_matmul_scaled(
    tiles: Tiles, a: Tensor, b: Tensor, log2_scale: Tensor, are_143: list[bool]
) -> Tensor:
    """The left operand has the scale; chips without 8-bit units cast, as PopLibs does there."""
    metadata = _computed_metadata(tiles, are_143[0], log2_scale)
    left = poputil.as_quarter(tiles.graph, a, metadata, tiles.sequence, tiles.name)
    right = _quarters(tiles, b, are_143[1], 0)
    if not tiles.graph.target.chip.has_quarter_units:
        left, right = (tiles.cast(operand, FLOAT) for operand in (left, right))
    return tiles.cast(_product(tiles, left, right), HALF)


def _computed_metadata(tiles: Tiles, is_143: bool, scale: Tensor) -> Tensor:
    """The metadata byte of a scale that the program computes."""
    graph, sequence, name = tiles.graph, tiles.sequence, f"{tiles.name}/metadata"
    zero = pack_metadata(quarter_format(is_143), 0)
    low_bits, form = (tiles.constant(n, INT) for n in (2**N_SCALE_BITS - 1, zero))
    low = popops.bitwise_and(graph, tiles.cast(scale, INT), low_bits, sequence, name)
    byte = popops.bitwise_or(graph, low, form, sequence, name)
    metadata = graph.add_variable(QUARTER_METADATA, [], name, mapping=0)
    tiles.copy(tiles.cast(byte, UNSIGNED_CHAR).reshape(()), metadata.reinterpret(UNSIGNED_CHAR))
    return metadata


@lowers("tremula::float8_convolution", calls="poplin.convolution")
def float8_convolution(  # noqa: PLR0917 - the operation's signature
    tiles: Tiles, x: Tensor, weight: Tensor, are_143: list[bool], scales: list[int],
    stride: list[int], padding: list[int], dilation: list[int], groups: int,
) -> Tensor:  # fmt: skip
    acts, weights = (
        _quarters(tiles, *each) for each in zip((x, weight), are_143, scales, strict=True)
    )
    shapes = x.shape, weight.shape, tiles.out_shape
    params = params_of(QUARTER, *shapes, stride, padding, dilation, groups)
    grouped = weights.reshape_partial(0, 1, (groups, weight.shape[0] // groups))
    options = {k: v for k, v in convolution_options(tiles).items() if k != "partials_type"}
    return poplin.convolution(
        tiles.graph, acts, grouped, params, tiles.sequence, tiles.name, **options
    )


@lowers("tremula::group_decompressed", calls="poplin.group_decompressed")
def group_decompressed(tiles: Tiles, packed: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return poplin.group_decompressed(tiles.graph, packed, scale, bias, tiles.sequence, tiles.name)
