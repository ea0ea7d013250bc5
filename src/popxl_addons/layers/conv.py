"""Convolutions of images.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.layers.conv import (
    Conv2D,
)

__all__ = [
    "Conv2D",
]
