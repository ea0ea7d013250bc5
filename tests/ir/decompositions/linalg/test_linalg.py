"""Linear algebra on tiles against PyTorch: values and gradients, batches, shapes, ranks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import linalg

from tests.ir.like_aten import assert_like_aten, complex_gradients
from tremula import run_on_tiles

pytestmark = pytest.mark.slow


def draws(*shape: int, seed: int = 5) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def with_gradients(function, *operands):
    return [function(*operands), *complex_gradients(function, *operands)]


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.wide)], ids=["some", "all"])
def test_systems_and_determinants(step):
    """Systems on both sides, determinants, LU; matrices that are rows or columns in memory."""

    def positive(a):
        return a @ a.mT + torch.eye(5)

    def function(a, b):
        cases = (
            (linalg.solve, a, b), (lambda a, b: linalg.solve(a.mT, b), a, b),
            (lambda a, b: linalg.solve(a, b.mT, left=False), a, b),
            (lambda a, b: linalg.solve(a, b[..., 0]), a, b), (linalg.det, a),
            (lambda a: linalg.det(a.mT), a), (lambda a: linalg.det(a * 2 + 1), a),
            (lambda a: linalg.slogdet(a)[1], a), (torch.logdet, a @ a.mT),
            (linalg.inv, a), (lambda a: linalg.matrix_power(a, -2), a),
            (lambda a: linalg.lu(a)[1] + linalg.lu(a)[2], a),
            (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True), a, b),
            (lambda a, b: torch.cholesky_solve(b, linalg.cholesky(positive(a))), a, b),
            (lambda a: torch.cholesky_inverse(linalg.cholesky(positive(a))), a),
        )  # fmt: skip
        result = [part for case in cases[::step] for part in with_gradients(*case)]
        return [*result, *linalg.slogdet(a), *linalg.lu_factor(a[..., :3])]

    assert_like_aten(function, draws(2, 5, 5), draws(2, 5, 3), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.wide)], ids=["some", "all"])
def test_functions_of_spectra(step):
    """What does not depend on the signs of vectors is PyTorch's, and so are gradients."""

    def of_eigenvalues(a):
        values, vectors = linalg.eigh(a + a.mT)
        return (vectors * values.exp().unsqueeze(-2)) @ vectors.mT

    def of_singular_values(m):
        u, values, vh = linalg.svd(m, full_matrices=False)
        return (u * values.tanh().unsqueeze(-2)) @ vh

    def function(a, m, b):
        cases = (
            (of_eigenvalues, a), (linalg.eigvalsh, a), (of_singular_values, m),
            (lambda m: of_singular_values(m.mT), m), (linalg.svdvals, m), (linalg.pinv, m),
            (lambda m, b: linalg.lstsq(m, b).solution, m, b), (linalg.cond, a),
            (lambda m: linalg.matrix_norm(m, "nuc"), m), (lambda m: linalg.matrix_norm(m, 2), m),
        )  # fmt: skip
        result = [part for case in cases[::step] for part in with_gradients(*case)]
        residuals = linalg.lstsq(m, b, driver="gelsd")
        return [*result, linalg.matrix_rank(a), *residuals]

    operands = draws(2, 4, 4), draws(2, 6, 3), draws(2, 6, 2)
    assert_like_aten(function, *operands, rtol=1e-3, atol=1e-3)


def test_orthogonal_factors_and_statistics():
    """QR in its three modes, the exponential of matrices small and large, covariances."""

    def function(m, a):
        wide = linalg.qr(m.mT)
        return [
            *with_gradients(lambda m: linalg.qr(m)[0] @ linalg.qr(m)[1].tanh(), m), *wide,
            *linalg.qr(m, "complete"), linalg.qr(m, "r")[1],
            *with_gradients(torch.matrix_exp, a), torch.matrix_exp(torch.stack([a * 30, a * 1e-3])),
            *with_gradients(torch.cov, m), torch.corrcoef(m),
        ]  # fmt: skip

    exponent = draws(4, 4) - 4 * torch.eye(4)
    assert_like_aten(function, draws(6, 3), exponent, rtol=1e-3, atol=1e-3)


def test_products_of_reflections():
    """LAPACK's packed QR, the matrix its reflections make, products with it from both sides."""

    def function(m, b):
        packed, tau = torch.geqrf(m)
        return [
            packed, tau, *torch.geqrf(m.mT), linalg.householder_product(m, tau[..., :2]),
            *with_gradients(torch.ormqr, m, tau, b), torch.ormqr(m, tau, b, transpose=True),
            torch.ormqr(m, tau, b.mT, left=False), torch.ormqr(m, torch.zeros_like(tau), b),
        ]  # fmt: skip

    assert_like_aten(function, draws(4, 3), draws(4, 2), rtol=1e-3, atol=1e-3)


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_singular_values_of_any_shape_and_rank(n_rows, n_columns, rank):
    """Factors are orthogonal and give the matrix again, also where it has not full rank."""
    rank = min(rank, n_rows, n_columns)
    m = draws(n_rows, rank) @ draws(rank, n_columns, seed=6)
    u, values, vh = run_on_tiles(linalg.svd, m)
    right = linalg.svdvals(m.double())
    size = right.max()
    assert (values - right).abs().max() <= 2e-6 * size
    k = min(n_rows, n_columns)
    assert ((u[:, :k] * values) @ vh[:k] - m).abs().max() <= 2e-6 * size
    for q in (u, vh):
        assert (q @ q.mT - torch.eye(len(q))).abs().max() <= 2e-6


def test_a_matrix_too_large_for_the_exponential_gives_nan():
    """Beyond the squarings of the program the result is NaN, never a wrong number."""
    (result,) = run_on_tiles(torch.matrix_exp, torch.tensor([[-1e6, 0.0], [0.0, -1.0]]))
    assert result.isnan().all()
