"""Factorisations on tiles against ATen: Cholesky's, triangular systems, inverses, gradients."""

import pytest
import torch

from tests.ir.like_aten import assert_like_aten, gradients


@pytest.mark.slow
def test_factors_and_solutions():
    """Both triangles, both sides, batches; gradients through all three."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(2, 5, 5, generator=random)

    def function(x, b):
        positive = x @ x.mT + 2 * torch.eye(5)
        solve = lambda x: torch.linalg.solve_triangular(  # noqa: E731
            x.tril() + 4 * torch.eye(5), b, upper=False
        )
        return [
            torch.linalg.cholesky(positive), torch.linalg.cholesky(positive, upper=True),
            *gradients(torch.linalg.cholesky, positive), solve(x), *gradients(solve, x),
            torch.linalg.solve_triangular(positive, b.mT, upper=True, left=False),
            torch.linalg.solve_triangular(positive[0], b, upper=True, unitriangular=True),
            torch.linalg.inv(x), torch.linalg.inv(positive[1]),
            *gradients(torch.linalg.inv, positive),
        ]  # fmt: skip

    assert_like_aten(function, x, torch.randn(2, 5, 3, generator=random), rtol=1e-3, atol=1e-3)
