"""Lowerings of factorisations: Cholesky's, LU, QR, Jacobi's; triangular systems, inverses."""

from math import prod

import numpy as np

from tremula.base.types import INT
from tremula.ir.lowering.indexing.row_tables import take_rows
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.ir.ops import linear_algebra as _linear_algebra  # noqa: F401  registers tremula::…
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poplin, popops, poputil


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
    result = poplin.triangular_solve(graph, upper, below, sequence, f"{name}/upper", lower=False)
    return result, _no_error(tiles, matrix)


@lowers("linalg_lu_factor_ex", calls="poplin.lu_packed")
def lu_factor(
    tiles: Tiles, matrix: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """PyTorch counts exchanged rows from 1."""
    del pivot, check_errors  # without exchanges PyTorch has it on GPUs only
    graph, sequence, name = tiles.graph, tiles.sequence, tiles.name
    packed, pivots = poplin.lu_packed(graph, matrix, sequence, name)
    one = tiles.constant(1, INT)
    return packed, popops.add(graph, pivots, one, sequence, name), _no_error(tiles, matrix)


@lowers("tremula::row_order", calls="poplin.permutation_of_pivots")
def row_order(tiles: Tiles, pivots: Tensor, n: int) -> Tensor:
    graph, sequence, name = tiles.graph, tiles.sequence, tiles.name
    exchanged = popops.sub(graph, pivots, tiles.constant(1, INT), sequence, f"{name}/from_0")
    return poplin.permutation_of_pivots(graph, exchanged, sequence, name, n_rows=n)


@lowers("linalg_qr", calls="poplin.qr_factorization")
def qr(tiles: Tiles, matrix: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    q, r = poplin.qr_factorization(
        tiles.graph, matrix, tiles.sequence, tiles.name, full_matrices=mode == "complete"
    )
    return (q.flatten().slice(0, 0, 0) if mode == "r" else q), r


@lowers("geqrf", calls="poplin.qr_packed")
def qr_packed(tiles: Tiles, matrix: Tensor) -> tuple[Tensor, Tensor]:
    return poplin.qr_packed(tiles.graph, matrix, tiles.sequence, tiles.name)


@lowers("tremula::orthogonal_columns", calls="poplin.orthogonal_columns")
def orthogonal_columns(tiles: Tiles, matrix: Tensor) -> tuple[Tensor, Tensor]:
    return poplin.orthogonal_columns(tiles.graph, matrix, tiles.sequence, tiles.name)
