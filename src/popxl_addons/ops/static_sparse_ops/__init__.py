"""Products with constant sparse matrices.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from .dense_sparse_matmul import (
    dense_const_sparse_matmul,
    random_sparse,
)

__all__ = [
    "dense_const_sparse_matmul",
    "dense_sparse_matmul",
    "random_sparse",
]
