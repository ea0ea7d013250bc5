"""popxl.fp8_utils: 8-bit floats on the host."""

from tremula.frontends.popxl.fp8_utils import (
    host_pow2scale_cast_from_fp8,
    host_pow2scale_cast_to_fp8,
)
