"""Powers of two that bring tensors into the range of 8-bit floats."""

from typing import NamedTuple

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl.fp8_utils import format_of


class FloatFormat(NamedTuple):
    """A floating-point format: bits, bias of the exponent, and its range."""

    num_exp_bits: int
    num_mantissa_bits: int
    fix_exponent_bias: int
    include_denorm: bool
    has_nans: bool
    max_value: float
    max_exp: int
    min_exp: int


ieee_fp32_no_denorms = FloatFormat(8, 23, 127, False, True, 3.4028235e38, 127, -126)
ieee_fp16_denorms = FloatFormat(5, 10, 15, True, True, 65504, 15, -14)
float8_152_def = FloatFormat(5, 2, 16, True, False, 57344, 15, -17)
float8_143_def = FloatFormat(4, 3, 8, True, False, 240, 7, -10)

MAX_SCALE = 31  # what a scale of 8-bit floats holds, and as much below zero
LARGEST = float(np.finfo(np.float32).max)


def fp8_amax_scale(src: popxl.Tensor, dtype: popxl.dtype = popxl.float8_143) -> popxl.Tensor:
    """The largest log2_scale, int32, with which no element of a tensor is out of range.

    For `ops.pow2scale_cast_to_fp8`. That of a tensor of zeros is the largest there is.
    """
    return ops.cast(_highest(_sizes(src), dtype), popxl.int32)


def fp8_mse_scale(src: popxl.Tensor, dtype: popxl.dtype = popxl.float8_143) -> popxl.Tensor:
    """The log2_scale, int32, with which 8 bits lose least, in the mean of squares.

    All scales at which elements are in range and have all of their digits lose alike: it is the
    middle one of them. If there is none, it is `fp8_amax_scale`.
    `popxl.fp8_utils.host_fp8_mse_scale` is the same on the host.
    """
    sizes = _sizes(src)
    high = _highest(sizes, dtype)
    none, zero = (popxl.constant(v, popxl.float32) for v in (LARGEST, 0.0))
    smallest = ops.min(ops.where(ops.equal(sizes, zero), none, sizes))
    low = ops.negate(ops.floor(ops.log2(smallest / format_of(dtype).least_normal)))
    low = ops.clip(low, -MAX_SCALE, MAX_SCALE)
    n_alike = ops.relu(high - low + 1.0)
    result = high - ops.floor(n_alike * 0.5)
    result = ops.where(ops.equal(ops.max(sizes), zero), zero, result)
    return ops.cast(result, popxl.int32)


def _sizes(src: popxl.Tensor) -> popxl.Tensor:
    if src.dtype not in (popxl.float16, popxl.float32):
        raise TypeError(f"Only floats of 16 and 32 bits become 8-bit floats, got {src!r}")
    return ops.abs(ops.cast(src, popxl.float32))


def _highest(sizes: popxl.Tensor, dtype: popxl.dtype) -> popxl.Tensor:
    """The largest scale with which the largest element is in range, as a float."""
    result = ops.floor(ops.log2(format_of(dtype).largest / ops.max(sizes)))
    return ops.clip(result, -MAX_SCALE, MAX_SCALE)


class CandidateConfig:
    """What a search for the best scale counts: exponents of the source that a format can hold."""

    def __init__(
        self, format: popxl.dtype, src_ftype: FloatFormat, dest_ftype: FloatFormat, src_type: object
    ):
        self.format = format
        self.num_exp_bits = dest_ftype.num_exp_bits
        self.num_mantissa_bits = dest_ftype.num_mantissa_bits
        self.fix_exponent_bias = dest_ftype.fix_exponent_bias
        is_single = popxl.dtype.as_dtype(src_type) == popxl.float32
        source = ieee_fp32_no_denorms if is_single else ieee_fp16_denorms
        n_lost = source.num_mantissa_bits - self.num_mantissa_bits
        self.quantisation_error = 2.0 ** (-2 * n_lost)
        self.format_span = dest_ftype.max_exp - dest_ftype.min_exp + 1
        # Indices of exponents of the source, from its smallest on.
        self.min_src_exp = dest_ftype.min_exp - MAX_SCALE - src_ftype.min_exp
        self.max_src_exp = min(
            dest_ftype.min_exp + MAX_SCALE - src_ftype.min_exp,
            src_ftype.max_exp - src_ftype.min_exp,
        )
        self.num_exp_src = self.max_src_exp - self.min_src_exp + 1
