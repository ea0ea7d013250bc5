"""Scales of 8-bit floats by the largest element.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.fp8_scales import (
    fp8_amax_scale,
)

__all__ = [
    "fp8_amax_scale",
]
