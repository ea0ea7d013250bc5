"""popsparse: sparse matrices on the host. Products on tiles are not there yet."""

from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.formats import COOMatrix, CSCMatrix, CSRMatrix

__all__ = ["COOMatrix", "CSCMatrix", "CSRMatrix", "SparsityError"]
