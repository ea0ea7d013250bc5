"""Squared norms of gradients.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.norms import (
    grad_reduce_square_add,
)

__all__ = [
    "grad_reduce_square_add",
]
