"""Lowerings of factorisations: Cholesky's, triangular systems, inverses of matrices."""

from math import prod

import numpy as np

from tremula.base.types import INT
from tremula.ir.lowering.indexing.row_tables import take_rows
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poplin, poputil


def _no_error(tiles: Tiles, matrix: Tensor) -> Tensor:
    """Whether a factorisation failed: never; a matrix without one gives NaN."""
    return poputil.broadcast_view(tiles.constant(0, INT), matrix.shape[:-2])


@lowers("linalg_cholesky_ex", calls="poplin.cholesky")
def cholesky(
    tiles: Tiles, matrix: Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    del check_errors
    factor = poplin.cholesky(tiles.graph, matrix, tiles.sequence, tiles.name, lower=not upper)
    return factor, _no_error(tiles, matrix)


@lowers("linalg_solve_triangular", calls="poplin.triangular_solve")
def solve_triangular(
    tiles: Tiles, a: Tensor, b: Tensor, *, upper: bool, left: bool = True,
    unitriangular: bool = False,
) -> Tensor:  # fmt: skip
    batch = tiles.out_shape[:-2]
    a = poputil.broadcast_view(a, (*batch, *a.shape[-2:]))
    b = poputil.broadcast_view(b, (*batch, *b.shape[-2:]))
    return poplin.triangular_solve(
        tiles.graph, a, b, tiles.sequence, tiles.name, left_side=left, lower=not upper,
        unit_diagonal=unitriangular,
    )  # fmt: skip


@lowers("linalg_inv_ex", calls="poplin.lu_factorization, poplin.triangular_solve")
def inverse(tiles: Tiles, matrix: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """The two systems of its factors, for the identity with its rows exchanged as theirs were."""
    del check_errors
    graph, sequence, name = tiles.graph, tiles.sequence, tiles.name
    n, n_batches = matrix.shape[-1], prod(matrix.shape[:-2])
    lower, upper, order = poplin.lu_factorization(graph, matrix, sequence, f"{name}/lu")
    one = tiles.constant(np.eye(n), matrix.type)
    table = poputil.broadcast_view(one, (n_batches, n, n))
    rows = take_rows(tiles, table, order.reshape((n_batches, n))).reshape(matrix.shape)
    below = poplin.triangular_solve(
        graph, lower, rows, sequence, f"{name}/lower", unit_diagonal=True
    )
    found = poplin.triangular_solve(graph, upper, below, sequence, f"{name}/upper", lower=False)
    return found, _no_error(tiles, matrix)
