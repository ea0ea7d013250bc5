"""Static products of values in the order of a CSR matrix, and their entries in the registry."""

from collections.abc import Iterator
from typing import Unpack

import numpy as np

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popsparse import references
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.formats import CSRMatrix
from tremula.poplibs.popsparse.references import random_values
from tremula.poplibs.popsparse.static import codelets
from tremula.poplibs.popsparse.static.operands import (
    MatMulParams,
    SparseTensor,
    StaticOptions,
    create_sparse_dense_mat_mul_lhs,
)
from tremula.poplibs.popsparse.static.product import (
    dense_gradient,
    sparse_dense_mat_mul,
    values_gradient,
)
from tremula.poplibs.registry import ErrorCase, Op, Sample, register


def sparse_of_values(
    graph: Graph, values: Tensor, pattern: CSRMatrix, n: int, sequence: Sequence, name: str,
    **options: Unpack[StaticOptions],
) -> SparseTensor:  # fmt: skip
    """A sparse operand for n columns whose values are copied from a tensor in CSR order."""
    if values.shape != pattern.nz_values.shape:
        raise SparsityError(
            f"a pattern of {len(pattern.nz_values)} values got a tensor of {list(values.shape)}.",
            hint="give the values as one dimension, in the order of the CSR matrix",
        )
    params = MatMulParams.create_for_sparse_dense(1, pattern.num_rows, pattern.num_columns, n)
    sparse = create_sparse_dense_mat_mul_lhs(
        graph, values.type, params, pattern, f"{name}/sparse", **options
    )
    if values.n_elems:
        sequence.add(Copy(values, sparse.in_row_order()))
    return sparse


def mat_mul(
    graph: Graph, values: Tensor, dense: Tensor, sequence: Sequence, *, pattern: CSRMatrix,
    name: str = "sparseMatMul", **options: Unpack[StaticOptions],
) -> Tensor:  # fmt: skip
    """The matrix with a pattern and these values, by a dense [k, n]: a new tensor [m, n]."""
    sparse = sparse_of_values(graph, values, pattern, _n_columns(dense), sequence, name, **options)
    return sparse_dense_mat_mul(graph, sparse, dense, sequence, name)


def mat_mul_dense_gradient(
    graph: Graph, values: Tensor, gradient: Tensor, sequence: Sequence, *, pattern: CSRMatrix,
    name: str = "denseGradient", **options: Unpack[StaticOptions],
) -> Tensor:  # fmt: skip
    """The gradient [k, n] of `mat_mul`'s dense operand, from its result's [m, n]."""
    sparse = sparse_of_values(
        graph, values, pattern, _n_columns(gradient), sequence, name, **options
    )
    return dense_gradient(graph, sparse, gradient, sequence, name)


def mat_mul_values_gradient(
    graph: Graph, dense: Tensor, gradient: Tensor, sequence: Sequence, *, pattern: CSRMatrix,
    name: str = "valuesGradient", **options: Unpack[StaticOptions],
) -> Tensor:  # fmt: skip
    """The gradient of `mat_mul`'s values, in CSR order, from its result's [m, n]."""
    params = MatMulParams.create_for_sparse_dense(
        1, pattern.num_rows, pattern.num_columns, _n_columns(dense)
    )
    sparse = create_sparse_dense_mat_mul_lhs(
        graph, dense.type, params, pattern, f"{name}/sparse", **options
    )
    result = values_gradient(graph, sparse, dense, gradient, sequence, name)
    return sparse.in_row_order(result)


def _n_columns(dense: Tensor) -> int:
    if dense.rank != 2:
        raise SparsityError(
            f"a static sparse product got a dense operand of {list(dense.shape)}, expected "
            "[rows, columns].",
            hint="reshape it to two dimensions",
        )
    return dense.shape[1]


# -- registry --------------------------------------------------------------------------------------

# (m, k, n, side, density): elements and blocks, few and many columns, empty, one full row, full.
_SAMPLES = (
    (12, 20, 7, 1, 0.3), (8, 16, 12, 4, 0.5), (32, 24, 5, 8, 0.4), (48, 32, 16, 16, 0.4),
    (6, 10, 3, 1, 0.0), (16, 16, 2, 8, 0.0), (5, 40, 9, 1, -1.0), (16, 32, 4, 16, 1.0),
    (60, 70, 33, 1, 0.1),
)  # fmt: skip


def random_pattern(
    rng: np.random.Generator, m: int, k: int, side: int, density: float
) -> CSRMatrix:
    """Blocks at random; a density below 0 is one full row and nothing else."""
    present = rng.random((m // side, k // side)) < density
    if density < 0:
        present[m // side // 2] = True
    return CSRMatrix.from_dense(np.kron(present, np.ones((side, side), np.float32)), (side, side))


def _forward_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for m, k, n, side, density in _SAMPLES:
        pattern = random_pattern(rng, m, k, side, density)
        values = random_values(rng, element, len(pattern.nz_values))
        yield Sample((values, random_values(rng, element, k, n)), {"pattern": pattern})


def _dense_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for m, k, n, side, density in _SAMPLES:
        pattern = random_pattern(rng, m, k, side, density)
        values = random_values(rng, element, len(pattern.nz_values))
        yield Sample((values, random_values(rng, element, m, n)), {"pattern": pattern})


def _gradient_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for m, k, n, side, density in _SAMPLES:
        pattern = random_pattern(rng, m, k, side, density)
        operands = random_values(rng, element, k, n), random_values(rng, element, m, n)
        yield Sample(operands, {"pattern": pattern})


def _errors(first: tuple[int, ...]) -> tuple[ErrorCase, ...]:
    pattern = CSRMatrix.from_dense(np.ones((4, 8), np.float32), (4, 4))
    uneven = CSRMatrix.from_dense(np.ones((4, 8), np.float32), (2, 2))
    ones = np.ones(first, np.float32)
    return (
        ErrorCase(
            Sample((ones, np.ones((9, 3), np.float32)), {"pattern": pattern}),
            "expected",
            SparsityError,
        ),
        ErrorCase(
            Sample((ones, np.ones((8, 3), np.float32)), {"pattern": uneven}),
            "blocks of 2 × 2",
            SparsityError,
        ),
    )


_FAMILIES = (codelets.sparse_dense_elements, codelets.sparse_dense_blocks, codelets.reduce_add)
_TOLERANCE = {"FLOAT": 2e-5, "HALF": 5e-3}

register(
    Op(
        name="popsparse.static.mat_mul",
        function=mat_mul,
        about="a sparse matrix of a pattern known when compiling, by a dense one",
        types=(FLOAT, HALF),
        samples=_forward_samples,
        reference=references.product,
        codelets=_FAMILIES,
        tolerance=_TOLERANCE,
        errors=_errors((32,)),
    )
)
register(
    Op(
        name="popsparse.static.mat_mul_dense_gradient",
        function=mat_mul_dense_gradient,
        about="the gradient of the dense operand of `static.mat_mul`",
        types=(FLOAT, HALF),
        samples=_dense_samples,
        reference=references.dense_gradient,
        codelets=(*_FAMILIES, codelets.gather_values, codelets.transpose_blocks),
        tolerance=_TOLERANCE,
    )
)
register(
    Op(
        name="popsparse.static.mat_mul_values_gradient",
        function=mat_mul_values_gradient,
        about="the gradient of the values of `static.mat_mul`, at the pattern alone",
        types=(FLOAT, HALF),
        samples=_gradient_samples,
        reference=references.values_gradient,
        codelets=(codelets.values_gradient, codelets.reduce_add),
        tolerance=_TOLERANCE,
    )
)
