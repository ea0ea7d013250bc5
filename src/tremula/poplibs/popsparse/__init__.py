"""popsparse: sparse matrices on the host, and their products on tiles."""

from tremula.poplibs.popsparse import dynamic, experimental, static
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.formats import COOMatrix, CSCMatrix, CSRMatrix
from tremula.poplibs.popsparse.product import dense_mat_mul

__all__ = [
    "COOMatrix", "CSCMatrix", "CSRMatrix", "SparsityError", "dense_mat_mul", "dynamic",
    "experimental", "static",
]  # fmt: skip
