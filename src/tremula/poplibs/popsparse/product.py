"""One name for all products of a sparse and a dense matrix: any pattern, on either side."""

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popsparse import dynamic, static
from tremula.poplibs.popsparse.errors import SparsityError

SparseOperand = static.SparseTensor | dynamic.SparseTensor


def dense_mat_mul(
    graph: Graph, lhs: SparseOperand | Tensor, rhs: SparseOperand | Tensor, sequence: Sequence,
    name: str = "sparseMatMul",
) -> Tensor:  # fmt: skip
    """The product of two matrices, one of them sparse: a new dense tensor.

    A sparse operand on the right with a pattern that changes is [m, k] as it was made: dense
    [n, m] by it is [n, k].
    """
    if isinstance(lhs, SparseOperand) == isinstance(rhs, SparseOperand):
        raise SparsityError(
            f"dense_mat_mul multiplies a sparse and a dense matrix, got {_kind(lhs)} and "
            f"{_kind(rhs)}.",
            source=user_source(),
            hint="make the sparse one with create_sparse_dense_mat_mul_lhs; two dense ones are "
            "poplin.mat_mul's",
        )
    if isinstance(lhs, SparseOperand):
        assert isinstance(rhs, Tensor), "the other one is dense"
        multiply = (
            static if isinstance(lhs, static.SparseTensor) else dynamic
        ).sparse_dense_mat_mul
        return multiply(graph, lhs, rhs, sequence, name=name)  # pyright: ignore[reportArgumentType] - kind matches lhs
    if isinstance(rhs, static.SparseTensor):
        return static.dense_sparse_mat_mul(graph, lhs, rhs, sequence, name)
    assert isinstance(rhs, dynamic.SparseTensor), "one of the two kinds"
    transposed = dynamic.sparse_dense_mat_mul(
        graph, rhs, lhs.transpose(), sequence, transpose_lhs=True, name=name
    )
    return transposed.transpose()


def _kind(operand: object) -> str:
    return "a sparse one" if isinstance(operand, SparseOperand) else "a dense one"
