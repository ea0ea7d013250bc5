"""Scales of 8-bit floats that lose least.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.fp8_scales import (
    CandidateConfig,
    fp8_mse_scale,
)

__all__ = [
    "CandidateConfig",
    "fp8_mse_scale",
]
