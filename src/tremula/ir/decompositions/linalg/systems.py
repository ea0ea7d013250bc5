"""Decompositions of systems and determinants: one factorisation, then triangular systems."""

import torch
from torch import Tensor

from tremula.ir.op_table import decomposes
from tremula.ir.ops import linear_algebra as _linear_algebra  # noqa: F401  registers tremula::…

aten = torch.ops.aten


def _factored(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Factors and exchanged rows of what determinants are taken of; gradients count on which.

    PyTorch factors the transpose of a matrix whose rows follow one another in memory.
    """
    matrix = matrix.mT if matrix.is_contiguous() else matrix
    factors, pivots, _ = aten.linalg_lu_factor_ex.default(matrix)
    return factors, pivots


def _sign_of_exchanges(pivots: Tensor) -> Tensor:
    """1 or -1: each row exchanged with another changes it."""
    stays = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    n_exchanges = (pivots != stays).sum(-1)
    return 1.0 - 2.0 * (n_exchanges % 2)


@decomposes(aten._linalg_det.default)
def det(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The product of the diagonal of LU's factors, signed by the exchanges of rows."""
    factors, pivots = _factored(matrix)
    product = factors.diagonal(dim1=-2, dim2=-1).prod(-1)
    return product * _sign_of_exchanges(pivots), factors, pivots


@decomposes(aten._linalg_slogdet.default)
def slogdet(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Signs and logarithms of the diagonal of LU's factors."""
    factors, pivots = _factored(matrix)
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    sign = diagonal.sign().prod(-1) * _sign_of_exchanges(pivots)
    return sign, diagonal.abs().log().sum(-1), factors, pivots


@decomposes(aten._linalg_solve_ex.default)
def solve(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """LU's factors, then their triangular systems."""
    del check_errors
    factors, pivots, error = aten.linalg_lu_factor_ex.default(a)
    is_vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    right = b.unsqueeze(-1) if is_vector else b
    result = lu_solve(factors, pivots, right, left=left)
    return (result.squeeze(-1) if is_vector else result), factors, pivots, error


@decomposes(aten.linalg_lu_solve.default)
def lu_solve(
    factors: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Two triangular systems; X·A = B is Aᵀ·Xᵀ = Bᵀ."""
    if not left:
        return lu_solve(factors, pivots, b.mT, adjoint=not adjoint).mT
    solve = torch.linalg.solve_triangular
    order = torch.ops.tremula.row_order(pivots, factors.shape[-1])
    if adjoint:
        below = solve(factors.mT, b, upper=False)
        result = solve(factors.mT, below, upper=True, unitriangular=True)
        return _with_rows(result, _inverse(order))
    below = solve(factors, _with_rows(b, order), upper=False, unitriangular=True)
    return solve(factors, below, upper=True)


def _with_rows(x: Tensor, order: Tensor) -> Tensor:
    """The rows of matrices in another order, a batch at a time or all batches alike."""
    batch = torch.broadcast_shapes(x.shape[:-2], order.shape[:-1])
    places = order.expand(*batch, order.shape[-1]).unsqueeze(-1)
    places = places.expand(*batch, order.shape[-1], x.shape[-1])
    return x.expand(*batch, *x.shape[-2:]).gather(-2, places)


def _inverse(order: Tensor) -> Tensor:
    """Where each row went: the place in `order` that names it."""
    places = torch.arange(order.shape[-1])
    is_there = order.unsqueeze(-1) == places  # [..., place, row]
    return torch.where(is_there, places.unsqueeze(-1), 0).sum(-2)


def _permutation_matrix(order: Tensor, like: Tensor) -> Tensor:
    """P with P·L·U = matrix, where matrix[order] = L·U."""
    return (torch.arange(order.shape[-1]).unsqueeze(-1) == order.unsqueeze(-2)).to(like.dtype)


@decomposes(aten.lu_unpack.default)
def lu_unpack(
    packed: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """The triangles of the packed factors; the permutation that the exchanges make."""
    n_rows, n_columns = packed.shape[-2:]
    k = min(n_rows, n_columns)
    none = packed.new_empty([0])
    order = torch.ops.tremula.row_order(pivots, n_rows) if unpack_pivots else None
    permutation = none if order is None else _permutation_matrix(order, packed)
    if not unpack_data:
        return permutation, none, none
    one = torch.eye(n_rows, k, dtype=packed.dtype)
    return permutation, packed[..., :k].tril(-1) + one, packed[..., :k, :].triu()


@decomposes(aten.linalg_lu.default)
def lu(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Packed factors, taken apart."""
    del pivot
    packed, pivots, _ = aten.linalg_lu_factor_ex.default(matrix)
    return lu_unpack(packed, pivots)


@decomposes(aten.cholesky_solve.default)
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """Two triangular systems."""
    lower = factor.mT if upper else factor
    below = torch.linalg.solve_triangular(lower, b, upper=False)
    return torch.linalg.solve_triangular(lower.mT, below, upper=True)


@decomposes(aten._cholesky_solve_helper.default)
def cholesky_solve_of_batch(b: Tensor, factor: Tensor, upper: bool) -> Tensor:
    """Two triangular systems."""
    return cholesky_solve(b, factor, upper)


@decomposes(aten.cholesky.default)
def cholesky(matrix: Tensor, upper: bool = False) -> Tensor:
    """linalg.cholesky_ex."""
    return aten.linalg_cholesky_ex.default(matrix, upper=upper)[0]


@decomposes(aten.cholesky_inverse.default)
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """Two triangular systems for the identity."""
    one = torch.eye(factor.shape[-1], dtype=factor.dtype)
    return cholesky_solve(one.expand(factor.shape), factor, upper)


@decomposes(aten.triangular_solve.default)
def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """linalg.solve_triangular."""
    triangle, is_upper = (a.mT, not upper) if transpose else (a, upper)
    result = torch.linalg.solve_triangular(triangle, b, upper=is_upper, unitriangular=unitriangular)
    return result, a.clone()
