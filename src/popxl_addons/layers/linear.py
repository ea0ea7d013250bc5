"""Linear layers.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.layers.linear import (
    Linear,
)

__all__ = [
    "Linear",
]
