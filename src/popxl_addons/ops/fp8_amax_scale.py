"""Scales of 8-bit floats."""

from tremula.frontends.popxl_addons.ops.fp8_scales import (
    fp8_amax_scale,
)

__all__ = [
    "fp8_amax_scale",
]
