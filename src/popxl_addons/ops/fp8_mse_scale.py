"""Scales of 8-bit floats that lose least."""

from tremula.frontends.popxl_addons.ops.fp8_scales import (
    fp8_mse_scale,
)

__all__ = [
    "fp8_mse_scale",
]
