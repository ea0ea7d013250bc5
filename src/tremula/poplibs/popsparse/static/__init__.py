"""popsparse.static: products of sparse matrices whose pattern is known when compiling."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.poplibs.popsparse.static.operands import (
    MatMulParams,
    SparseTensor,
    create_dense_sparse_mat_mul_lhs,
    create_dense_sparse_mat_mul_rhs,
    create_sparse_dense_mat_mul_lhs,
    create_sparse_dense_mat_mul_rhs,
    planned_cycles,
)
from tremula.poplibs.popsparse.static.ops import (
    mat_mul,
    mat_mul_dense_gradient,
    mat_mul_values_gradient,
)
from tremula.poplibs.popsparse.static.partitioner import Partitioner
from tremula.poplibs.popsparse.static.product import (
    dense_gradient,
    dense_sparse_mat_mul,
    sparse_dense_mat_mul,
    values_gradient,
)

__all__ = [
    "MatMulParams", "Partitioner", "SparseTensor", "create_dense_sparse_mat_mul_lhs",
    "create_dense_sparse_mat_mul_rhs", "create_sparse_dense_mat_mul_lhs",
    "create_sparse_dense_mat_mul_rhs", "dense_gradient", "dense_sparse_mat_mul", "mat_mul",
    "mat_mul_dense_gradient", "mat_mul_values_gradient", "planned_cycles", "sparse_dense_mat_mul",
    "values_gradient",
]  # fmt: skip

_explain_arguments_of(globals(), __all__)
