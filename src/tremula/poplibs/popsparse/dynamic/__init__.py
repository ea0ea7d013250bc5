"""popsparse.dynamic: products of sparse matrices whose pattern the host gives at run time."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.poplibs.popsparse.dynamic.buckets import SparseTensor
from tremula.poplibs.popsparse.dynamic.embedding import (
    create_indices_tensor,
    create_slice_tensor,
    embedding_slice,
    embedding_update_add,
)
from tremula.poplibs.popsparse.dynamic.layer import (
    create_fully_connected_input,
    create_fully_connected_weights,
    create_sparse_dense_mat_mul_lhs,
    create_sparse_dense_mat_mul_rhs,
    fully_connected_fwd,
    fully_connected_grad_a,
    fully_connected_sparse_grad_w,
    sparse_dense_mat_mul,
)
from tremula.poplibs.popsparse.dynamic.ops import (
    mat_mul,
    mat_mul_dense_gradient,
    mat_mul_values_gradient,
    slice_rows,
    update_rows,
)
from tremula.poplibs.popsparse.dynamic.params import (
    DynamicOptions,
    FullyConnectedParams,
    MatMulParams,
)
from tremula.poplibs.popsparse.dynamic.partitioner import (
    KnownPattern,
    Partitioner,
    SparsityData,
)

__all__ = [
    "DynamicOptions", "FullyConnectedParams", "KnownPattern", "MatMulParams", "Partitioner",
    "SparseTensor", "SparsityData", "create_fully_connected_input",
    "create_fully_connected_weights", "create_indices_tensor", "create_slice_tensor",
    "create_sparse_dense_mat_mul_lhs", "create_sparse_dense_mat_mul_rhs", "embedding_slice",
    "embedding_update_add", "fully_connected_fwd", "fully_connected_grad_a",
    "fully_connected_sparse_grad_w", "mat_mul", "mat_mul_dense_gradient",
    "mat_mul_values_gradient", "slice_rows", "sparse_dense_mat_mul", "update_rows",
]  # fmt: skip

_explain_arguments_of(globals(), __all__)
