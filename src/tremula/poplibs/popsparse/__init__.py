"""popsparse: sparse matrices on the host, and their products on tiles."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.base.names.argument_types import (
    explain_arguments_of_methods as _explain_arguments_of_methods,
)
from tremula.poplibs.popsparse import dynamic, experimental, static
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.formats import COOMatrix, CSCMatrix, CSRMatrix
from tremula.poplibs.popsparse.product import dense_mat_mul

__all__ = [
    "COOMatrix", "CSCMatrix", "CSRMatrix", "SparsityError", "dense_mat_mul", "dynamic",
    "experimental", "static",
]  # fmt: skip

_explain_arguments_of(globals(), __all__)
for _format in (COOMatrix, CSCMatrix, CSRMatrix):
    _explain_arguments_of_methods(_format)
