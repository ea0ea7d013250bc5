"""Products with a sparse matrix whose positions and values are known while a graph is built."""

from typing import Protocol

import numpy as np
import torch

import popxl
from tremula.frontends.popxl.core.table import Operand, operation
from tremula.ir.ops import sparse  # noqa: F401  registers tremula::sparse_mm
from tremula.ir.ops.sparse_pattern import SparsePattern


class CSR(Protocol):
    """A matrix of compressed rows, such as scipy.sparse.csr_matrix."""

    data: np.ndarray  # values
    indices: np.ndarray  # the column of each
    indptr: np.ndarray  # where each row begins, and the last ends


def random_sparse(
    dense: np.ndarray, density: float = 0.5, generator: np.random.Generator | None = None
) -> np.ndarray:
    """The matrix itself, with about this share of its elements left; at least one."""
    if not 0 < density <= 1:
        raise ValueError(f"density must be above 0 and at most 1, got {density}")
    draw = generator or np.random.default_rng()
    dropped = draw.random(dense.shape) >= density
    if dropped.all():
        dropped.flat[0] = False
    dense[dropped] = 0
    return dense


def dense_const_sparse_matmul(lhs: popxl.Tensor, rhs: CSR, output_cols: int) -> popxl.Tensor:
    """Rows […, k] times a constant sparse matrix [k, output_cols], in the type of the rows."""
    if lhs.dtype not in (popxl.float16, popxl.float32):
        raise TypeError(f"Sparse products take float16 or float32, got {lhs!r}")
    if len(rhs.indptr) - 1 != lhs.shape[-1]:
        raise ValueError(
            f"The sparse matrix has {len(rhs.indptr) - 1} rows, expected {lhs.shape[-1]}, as many"
            f" as {lhs!r} has columns"
        )
    pattern, values = _ordered(rhs, output_cols)
    constant = popxl.constant(values.reshape(-1, 1, 1), lhs.dtype, "sparse_values")
    return _sparse_matmul(lhs, constant, pattern.number)


def _ordered(rhs: CSR, n_columns: int) -> tuple[SparsePattern, np.ndarray]:
    """The pattern with columns ascending in each row, and values in that order."""
    starts, columns = (np.asarray(part, np.int32) for part in (rhs.indptr, rhs.indices))
    rows = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    if len(columns) and not 0 <= columns.min() <= columns.max() < n_columns:
        raise ValueError(f"A column of the sparse matrix is not below output_cols, {n_columns}")
    if ((np.diff(rows) == 0) & (np.diff(columns) == 0)).any():
        raise ValueError("The sparse matrix has a position twice: call its sum_duplicates() first")
    pattern = SparsePattern(len(starts) - 1, n_columns, 1, starts, columns)
    return pattern, np.asarray(rhs.data)[order]


@operation("DenseSparseMatMul", name="_sparse_matmul", same=("lhs", "values"))
def _sparse_matmul(lhs: Operand, values: Operand, pattern: int) -> torch.Tensor:
    rows = lhs.flatten(0, -2) if lhs.dim() > 1 else lhs.unsqueeze(0)
    result = torch.ops.tremula.sparse_mm(values, rows.mT, pattern, True).mT
    return result.reshape(*lhs.shape[:-1], result.shape[-1])
