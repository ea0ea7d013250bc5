"""Squared norms of gradients.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from .grad_reduce_square_add import (
    grad_reduce_square_add,
)

__all__ = [
    "grad_reduce_square_add",
]
