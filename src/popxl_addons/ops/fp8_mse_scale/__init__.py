"""Scales of 8-bit floats that lose least.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from .fp8_mse_scale import (
    CandidateConfig,
    fp8_mse_scale,
)

__all__ = [
    "CandidateConfig",
    "fp8_mse_scale",
]
