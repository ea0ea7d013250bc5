"""Tensors spread evenly over tiles.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from .linear_layout import (
    linear_layout,
)

__all__ = [
    "linear_layout",
]
