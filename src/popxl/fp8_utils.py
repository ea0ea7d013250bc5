"""popxl.fp8_utils: 8-bit floats on the host."""

from tremula.frontends.popxl.fp8_utils import (
    host_fp8_mse_scale,
    host_fp8_mse_scale_pb,
    host_pow2scale_cast_from_fp8,
    host_pow2scale_cast_to_fp8,
)
