"""Floating-point formats.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.fp8_scales import (
    float8_143_def,
    float8_152_def,
    ieee_fp16_denorms,
    ieee_fp32_no_denorms,
)

__all__ = [
    "float8_143_def",
    "float8_152_def",
    "ieee_fp16_denorms",
    "ieee_fp32_no_denorms",
]
