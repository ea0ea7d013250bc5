"""Linear layers in 8-bit floats.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.layers.low_precision import (
    LinearFP8,
)

__all__ = [
    "LinearFP8",
]
