"""Group norms.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.layers.norms import (
    GroupNorm,
)

__all__ = [
    "GroupNorm",
]
