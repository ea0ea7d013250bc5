"""Linear algebra: factors, solutions, eigenvalues, Fourier transforms."""

import math

import torch
from torch import Tensor

from tremula.frontends.jax.carriers import Value
from tremula.frontends.jax.errors import JaxError
from tremula.frontends.jax.table import Equation, rule


def _all_of_it(eqn: Equation) -> None:
    if eqn.params.get("subset_by_index") is not None:
        raise JaxError(f"{eqn.name} gives all values, not a subset of them by index.")


@rule("cholesky")
def cholesky(_eqn: Equation, x: Tensor) -> Tensor:
    """NaN where a matrix has no factor, as JAX has it."""
    factor, failed = torch.linalg.cholesky_ex(x)
    return torch.where((failed == 0)[..., None, None], factor, torch.full_like(factor, math.nan))


@rule("eigh")
def eigh(eqn: Equation, x: Tensor) -> list[Value]:
    _all_of_it(eqn)
    values, vectors = torch.linalg.eigh(x, UPLO="L" if eqn.params["lower"] else "U")
    return [vectors, values]


@rule("svd")
def svd(eqn: Equation, x: Tensor) -> list[Value]:
    _all_of_it(eqn)
    if not eqn.params["compute_uv"]:
        return [torch.linalg.svdvals(x)]
    left, values, right = torch.linalg.svd(x, full_matrices=eqn.params["full_matrices"])
    return [values, left, right]


@rule("qr")
def qr(eqn: Equation, x: Tensor) -> list[Value]:
    if eqn.params.get("pivoting"):
        raise JaxError("qr with pivoting has no translation.", hint="use qr without pivoting")
    return list(torch.linalg.qr(x, "complete" if eqn.params["full_matrices"] else "reduced"))


@rule("geqrf")
def geqrf(_eqn: Equation, x: Tensor) -> list[Value]:
    return list(torch.geqrf(x))


@rule("householder_product")
def householder_product(_eqn: Equation, x: Tensor, factors: Tensor) -> Tensor:
    return torch.linalg.householder_product(x, factors)


@rule("lu")
def lu(_eqn: Equation, x: Tensor) -> list[Value]:
    factors, pivots = torch.linalg.lu_factor(x)
    return [factors, pivots - 1, _permutation(pivots - 1, x.shape[-2])]


@rule("lu_pivots_to_permutation")
def pivots_to_permutation(eqn: Equation, pivots: Tensor) -> Tensor:
    return _permutation(pivots, eqn.params["permutation_size"])


def _permutation(pivots: Tensor, size: int) -> Tensor:
    """Rows after the swaps (i, pivots[i]), one after another."""
    order = torch.arange(size, dtype=torch.int32).expand(*pivots.shape[:-1], size)
    for i in range(pivots.shape[-1]):
        other = pivots[..., i : i + 1].to(torch.int64)
        here, there = order[..., i : i + 1], torch.gather(order, -1, other)
        order = order.scatter(-1, other, here)
        order = torch.cat([order[..., :i], there, order[..., i + 1 :]], -1)
    return order


@rule("triangular_solve")
def triangular_solve(eqn: Equation, factor: Tensor, right: Tensor) -> Tensor:
    params = eqn.params
    is_upper = not params["lower"]
    if params["transpose_a"]:
        factor, is_upper = factor.mT, not is_upper
    if params["conjugate_a"]:
        factor = factor.conj()
    return torch.linalg.solve_triangular(
        factor, right, upper=is_upper, left=params["left_side"],
        unitriangular=params["unit_diagonal"],
    )  # fmt: skip


@rule("fft")
def fft(eqn: Equation, x: Tensor) -> Tensor:
    kind, lengths = eqn.params["fft_type"].name, list(eqn.params["fft_lengths"])
    dims = list(range(-len(lengths), 0))
    if kind in ("FFT", "IFFT"):
        function = torch.fft.fftn if kind == "FFT" else torch.fft.ifftn
        return function(x, dim=dims)
    function = torch.fft.rfftn if kind == "RFFT" else torch.fft.irfftn
    return function(x, s=lengths, dim=dims)


@rule("eig")
def eig(eqn: Equation, x: Tensor) -> list[Value]:
    if eqn.params["compute_left_eigenvectors"]:
        raise JaxError("eig without left eigenvectors is what there is.",
                       hint="take those of the transposed matrix")  # fmt: skip
    values, vectors = torch.linalg.eig(x)
    return [values, vectors] if eqn.params["compute_right_eigenvectors"] else [values]


@rule("tridiagonal_solve")
def tridiagonal_solve(_eqn: Equation, low: Tensor, diagonal: Tensor, high: Tensor,
                      right: Tensor) -> Tensor:  # fmt: skip
    """A dense system: the matrix has its three diagonals, and zeros."""
    matrix = torch.diag_embed(diagonal)
    matrix = matrix + torch.diag_embed(low[..., 1:], offset=-1)
    matrix = matrix + torch.diag_embed(high[..., :-1], offset=1)
    return torch.linalg.solve(matrix, right)
