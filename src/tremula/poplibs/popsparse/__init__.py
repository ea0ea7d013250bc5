"""popsparse: sparse matrices on the host, and their products on tiles."""

from tremula.poplibs.popsparse import dynamic, static
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.formats import COOMatrix, CSCMatrix, CSRMatrix

__all__ = ["COOMatrix", "CSCMatrix", "CSRMatrix", "SparsityError", "dynamic", "static"]
