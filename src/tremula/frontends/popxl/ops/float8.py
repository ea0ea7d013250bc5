"""8-bit floats: casts with a power-of-two scale, and products of such tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tremula.base.floats import LARGEST_CODE, QuarterFormat, quarter_table
from tremula.frontends.popxl.core.registry import FUNCTIONS, Attributes, Types, public
from tremula.frontends.popxl.core.table import Operand, operation
from tremula.frontends.popxl.core.tensor import Tensor as PopxlTensor
from tremula.frontends.popxl.dtypes import dtype, float16, int32
from tremula.frontends.popxl.fp8_utils import format_of
from tremula.frontends.popxl.ops.choices import check_choices
from tremula.frontends.popxl.ops.products import conv_transposed, convolved
from tremula.ir.ops import low_precision  # noqa: F401  registers tremula::*

PAGE_SECTION = (9, "8-bit floats")


def encoded(t: Tensor, log2_scale: Tensor, form: QuarterFormat) -> Tensor:
    """Codes of numbers times a power of two; those out of range become NaN."""
    wide = t.float() * torch.pow(2.0, log2_scale.float())
    size = wide.abs()
    is_finite = size < float("inf")  # false for NaN
    size = torch.where(is_finite, size, torch.zeros_like(size))
    n_bits, bias = form.n_mantissa_bits, form.bias
    exponent = torch.floor(torch.log2(torch.clamp(size, min=2.0**-60)))
    exponent = torch.clamp(exponent, min=1.0 - bias)
    quantum = torch.pow(2.0, exponent - n_bits)
    steps = torch.round(size / quantum)  # ties to even
    is_normal = steps >= 2**n_bits
    carry = (steps >= 2 ** (n_bits + 1)).float()
    field = torch.where(is_normal, exponent + bias + carry, torch.zeros_like(exponent))
    mantissa = torch.where(is_normal, steps / (1 + carry) - 2**n_bits, steps)
    code = field * 2**n_bits + mantissa
    sign = torch.where((wide < 0) & (code > 0), 128.0, 0.0)
    is_number = is_finite & (code <= LARGEST_CODE)  # after rounding
    return torch.where(is_number, code + sign, torch.full_like(code, 128.0)).to(torch.uint8)


def decoded(codes: Tensor, form: QuarterFormat) -> Tensor:
    table = torch.tensor(quarter_table(form).tolist(), device=codes.device)
    return torch.index_select(table, 0, codes.reshape(-1).long()).reshape(codes.shape)


@operation(
    "Pow2ScaleThenCast", name="_to_fp8",
    types=lambda _inputs, attributes: attributes["data_type"],
)  # fmt: skip
def _to_fp8(t: Operand, log2_scale: Operand, data_type: dtype) -> Tensor:
    return encoded(t, log2_scale, format_of(data_type))


@public
def pow2scale_cast_to_fp8(
    t: PopxlTensor, log2_scale: PopxlTensor | int, data_type: dtype
) -> PopxlTensor:
    """Numbers times `2^log2_scale` as 8-bit floats."""
    format_of(data_type)
    if not t.dtype.is_float or t.dtype.is_float8:
        raise TypeError(f"Only floats of 16 and 32 bits become 8-bit floats, got {t!r}")
    return _to_fp8(t, _scale(t, log2_scale), data_type)


@operation(
    "CastThenPow2Scale", name="_from_fp8",
    types=lambda _inputs, attributes: attributes["data_type"],
)  # fmt: skip
def _from_fp8(t: Operand, log2_scale: Operand, data_type: dtype, source: dtype) -> Tensor:
    wide = decoded(t, format_of(source)) * torch.pow(2.0, log2_scale.float())
    return wide.to(data_type.carrier)


@public
def pow2scale_cast_from_fp8(
    t: PopxlTensor, log2_scale: PopxlTensor | int, data_type: dtype = float16
) -> PopxlTensor:
    """8-bit floats times `2^log2_scale` as numbers of another type."""
    format_of(t.dtype)
    if not data_type.is_float or data_type.is_float8:
        raise TypeError(f"8-bit floats become floats of 16 or 32 bits, got {data_type!r}")
    return _from_fp8(t, _scale(t, log2_scale), data_type, t.dtype)


# Their names in earlier versions.
FUNCTIONS.enter("pow2scale_then_cast", pow2scale_cast_to_fp8)
FUNCTIONS.enter("cast_then_pow2scale", pow2scale_cast_from_fp8)


def _scale(t: PopxlTensor, log2_scale: PopxlTensor | int) -> PopxlTensor:
    """The power of two: one integer, in the program or computed by it."""
    scale = t._ensure_tensor(log2_scale, int32)
    if scale.rank:
        raise ValueError(f"log2_scale must be a scalar tensor, got shape {scale.shape}")
    if scale.dtype != int32:
        raise TypeError(f"log2_scale must be of type popxl.int32, got {scale.dtype!r}")
    return scale


def _check_pair(name: str, a: PopxlTensor, b: PopxlTensor) -> None:
    if not (a.dtype.is_float8 and b.dtype.is_float8):
        raise TypeError(f"popxl.ops.{name} takes 8-bit floats, got {a!r} and {b!r}")


def _half(_inputs: Types, _attributes: Attributes) -> dtype:
    return float16


def _scaled(product: Tensor, log2_scale: Tensor) -> Tensor:
    return (product * torch.pow(2.0, log2_scale.float())).to(torch.float16)


@operation("MatMulPow2Scaled", class_name="MatMul", name="_matmul_fp8", types=_half)
def _matmul_fp8(
    lhs: Operand, rhs: Operand, log2_scale: Operand, formats: tuple[dtype, dtype],
    available_memory_proportion: float | None = None,  # noqa: ARG001 - read by `choices_of`
) -> Tensor:  # fmt: skip
    are_matrices = lhs.dim() >= 2 and rhs.dim() >= 2
    if are_matrices and (rhs.dim() == 2 or lhs.shape[:-2] == rhs.shape[:-2]):
        are_143 = [format_of(f) is QuarterFormat.F143 for f in formats]
        return torch.ops.tremula.float8_matmul_scaled(lhs, rhs, log2_scale, are_143)
    a, b = (decoded(t, format_of(f)) for t, f in zip((lhs, rhs), formats, strict=True))
    return _scaled(a @ b, log2_scale)


@public
def matmul_pow2scaled(
    lhs: PopxlTensor,
    rhs: PopxlTensor,
    log2_scale: PopxlTensor | int,
    available_memory_proportion: float | None = None,
) -> PopxlTensor:
    """The product of matrices of 8-bit floats, times `2^log2_scale`, in float16."""
    _check_pair("matmul_pow2scaled", lhs, rhs)
    formats = lhs.dtype, rhs.dtype
    scale = _scale(lhs, log2_scale)
    return _matmul_fp8(lhs, rhs, scale, formats, available_memory_proportion)


@operation("ConvPow2Scaled", class_name="Conv", name="_conv_fp8", types=_half)
def _conv_fp8(
    t: Operand, weight: Operand, log2_scale: Operand, formats: tuple, arguments: tuple,
    available_memory_proportions: Sequence[float] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    check_choices(available_memory_proportions, dithering=enable_conv_dithering)
    a, b = (decoded(x, format_of(f)) for x, f in zip((t, weight), formats, strict=True))
    return _scaled(convolved(a, b, *arguments), log2_scale)


@public
def conv_pow2scaled(
    t: PopxlTensor,
    weight: PopxlTensor,
    log2_scale: PopxlTensor | int,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    available_memory_proportions: Sequence[float] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> PopxlTensor:
    """A convolution of 8-bit floats, times `2^log2_scale`, in float16."""
    _check_pair("conv_pow2scaled", t, weight)
    arguments = (tuple(stride), tuple(padding), tuple(dilation), groups, pad_type)
    formats = t.dtype, weight.dtype
    scale = _scale(t, log2_scale)
    return _conv_fp8(
        t, weight, scale, formats, arguments, available_memory_proportions, enable_conv_dithering
    )


@operation("ConvTransposePow2Scaled", class_name="ConvTranspose", name="_conv_t_fp8", types=_half)
def _conv_t_fp8(
    t: Operand, weight: Operand, log2_scale: Operand, formats: tuple, arguments: tuple,
    available_memory_proportions: Sequence[float] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    check_choices(available_memory_proportions, dithering=enable_conv_dithering)
    a, b = (decoded(x, format_of(f)) for x, f in zip((t, weight), formats, strict=True))
    return _scaled(conv_transposed(a, b, *arguments), log2_scale)


@public
def conv_transpose_pow2scaled(
    t: PopxlTensor,
    weight: PopxlTensor,
    log2_scale: PopxlTensor | int,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    available_memory_proportions: Sequence[float] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> PopxlTensor:
    """The transpose of a convolution of 8-bit floats, times `2^log2_scale`, in float16."""
    _check_pair("conv_transpose_pow2scaled", t, weight)
    arguments = (
        tuple(stride), tuple(padding), tuple(dilation), groups, pad_type, tuple(output_padding),
        tuple(output_shape),
    )  # fmt: skip
    formats = t.dtype, weight.dtype
    scale = _scale(t, log2_scale)
    return _conv_t_fp8(
        t, weight, scale, formats, arguments, available_memory_proportions, enable_conv_dithering
    )
