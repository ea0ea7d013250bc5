"""Products of a sparse matrix whose pattern is known when compiling, and their gradients.

lhs = static.create_sparse_dense_mat_mul_lhs(graph, tr.HALF, params, csr)
rhs = static.create_sparse_dense_mat_mul_rhs(graph, tr.HALF, params, csr)
out = static.sparse_dense_mat_mul(graph, lhs, rhs, sequence)
"""

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.static.operands import (
    SparseTensor,
    StaticProduct,
    check_side,
    create_dense,
    create_values,
    stored_blocks,
    view_of,
)
from tremula.poplibs.popsparse.static.vertices import (
    add_multiply,
    add_values_gradient,
    own_values,
    turned_values,
)


def sparse_dense_mat_mul(
    graph: Graph, lhs: SparseTensor, rhs: Tensor, sequence: Sequence, name: str = "sparseMatMul",
    *, transpose_lhs: bool = False, transpose_rhs: bool = False,
) -> Tensor:  # fmt: skip
    """Sparse [m, k] by dense [k, n], or [n, k] to be transposed: a new tensor [m, n]."""
    _reject_transposed(transpose_lhs, "left")
    rhs = rhs.transpose() if transpose_rhs else rhs
    p = _check_operand(lhs, rhs, (lhs.product.params.k, lhs.product.params.n), is_transposed=False)
    dense = stored_blocks(graph, rhs, p.side, sequence, name)
    out = create_dense(graph, p.element, p.params.m, p.params.n, p.side, f"{name}/out")
    slices = own_values(lhs)
    add_multiply(graph, p, p.forward, slices, dense, out.flatten(), sequence, name)
    return view_of(out)


def dense_sparse_mat_mul(
    graph: Graph, lhs: Tensor, rhs: SparseTensor, sequence: Sequence, name: str = "sparseMatMul",
    *, transpose_lhs: bool = False, transpose_rhs: bool = False,
) -> Tensor:  # fmt: skip
    """Dense [n, k], or [k, n] to be transposed, by sparse [k, m]: a new tensor [n, m]."""
    _reject_transposed(transpose_rhs, "right")
    lhs = lhs.transpose() if transpose_lhs else lhs
    p = _check_operand(rhs, lhs, (rhs.product.params.n, rhs.product.params.k), is_transposed=True)
    dense = stored_blocks(graph, lhs.transpose(), p.side, sequence, name)
    out = create_dense(graph, p.element, p.params.m, p.params.n, p.side, f"{name}/out")
    slices = own_values(rhs)
    add_multiply(graph, p, p.forward, slices, dense, out.flatten(), sequence, name)
    return view_of(out).transpose()


def dense_gradient(
    graph: Graph, sparse: SparseTensor, gradient: Tensor, sequence: Sequence,
    name: str = "denseGradient",
) -> Tensor:  # fmt: skip
    """The dense operand's gradient, from that of the result: the transposed matrix by it.

    Values stay on their tiles; each tile turns its own.
    """
    p = sparse.product
    is_transposed = p.params.is_transposed
    shape = (p.params.n, p.params.m) if is_transposed else (p.params.m, p.params.n)
    _check_operand(sparse, gradient, shape, is_transposed=is_transposed)
    untransposed = gradient.transpose() if is_transposed else gradient
    dense = stored_blocks(graph, untransposed, p.side, sequence, name)
    out = create_dense(graph, p.element, p.params.k, p.params.n, p.side, f"{name}/out")
    slices = turned_values(graph, sparse, sequence, name)
    add_multiply(graph, p, p.backward, slices, dense, out.flatten(), sequence, name)
    return view_of(out).transpose() if is_transposed else view_of(out)


def values_gradient(
    graph: Graph, sparse: SparseTensor, dense: Tensor, gradient: Tensor, sequence: Sequence,
    name: str = "valuesGradient",
) -> Tensor:  # fmt: skip
    """The values' gradient, in device order: the result's gradient by the dense operand."""
    p = sparse.product
    is_transposed = p.params.is_transposed
    shapes = (p.params.k, p.params.n), (p.params.m, p.params.n)
    stored = []
    for tensor, shape in zip((dense, gradient), shapes, strict=True):
        _check_operand(
            sparse, tensor, shape[::-1] if is_transposed else shape, is_transposed=is_transposed
        )
        untransposed = tensor.transpose() if is_transposed else tensor
        stored.append(stored_blocks(graph, untransposed, p.side, sequence, name))
    out = create_values(graph, p, f"{name}/out")
    if p.n_blocks:
        add_values_gradient(graph, p, stored[0], stored[1], out, sequence, name)
    return out


def _reject_transposed(is_transposed: bool, side: str) -> None:
    """The plan of a static product is that of its pattern, not of the transposed one."""
    if is_transposed:
        raise SparsityError(
            f"the sparse {side} operand of a static product cannot be transposed.",
            source=user_source(),
            hint="make it of the transposed matrix, or use dense_gradient, which multiplies by it",
        )


def _check_operand(
    sparse: SparseTensor, dense: Tensor, shape: tuple[int, ...], *, is_transposed: bool
) -> StaticProduct:
    p = sparse.product
    check_side(p.params, is_transposed=is_transposed)
    if dense.type != p.element or dense.shape != shape:
        raise SparsityError(
            f"a static sparse product of {p.element} got a dense operand of {dense.type} "
            f"{list(dense.shape)}, expected {p.element} {list(shape)}.",
            source=user_source(),
            hint="cast or reshape it, or make params for it",
        )
    return p
