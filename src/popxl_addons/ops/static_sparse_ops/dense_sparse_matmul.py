"""Products with constant sparse matrices.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.static_sparse import (
    dense_const_sparse_matmul,
    random_sparse,
)

__all__ = [
    "dense_const_sparse_matmul",
    "random_sparse",
]
