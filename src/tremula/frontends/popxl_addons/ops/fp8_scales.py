"""Powers of two that bring tensors into the range of 8-bit floats."""

import popxl
from popxl import ops
from tremula.frontends.popxl.fp8_utils import format_of

MAX_SCALE = 31  # what a scale of 8-bit floats holds, and as much below zero


def fp8_amax_scale(src: popxl.Tensor, dtype: popxl.dtype = popxl.float8_143) -> popxl.Tensor:
    """The largest log2_scale, int32, with which no element of a tensor is out of range.

    For `ops.pow2scale_cast_to_fp8`. That of a tensor of zeros is the largest there is.
    """
    if src.dtype not in (popxl.float16, popxl.float32):
        raise TypeError(f"Only floats of 16 and 32 bits become 8-bit floats, got {src!r}")
    largest = format_of(dtype).largest
    amax = ops.max(ops.abs(ops.cast(src, popxl.float32)))
    found = ops.floor(ops.log2(largest / amax))
    return ops.cast(ops.clip(found, -MAX_SCALE, MAX_SCALE), popxl.int32)
