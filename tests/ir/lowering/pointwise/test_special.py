"""Special functions on tiles against ATen: values where formulas change, and gradients."""

import pytest
import torch

from tests.ir.like_aten import assert_like_aten

inf = float("inf")


def with_gradient(function, x):
    x = x.detach().requires_grad_()
    y = function(x)
    return [y, torch.autograd.grad(y, x, torch.ones_like(y))[0]]


@pytest.mark.slow
def test_gamma():
    """The logarithm of gamma and its derivatives: reflected below 1/2, large arguments, poles."""
    x = torch.tensor([1e-3, 0.3, 0.5, 1.0, 1.7, 2.0, 6.5, 40.0, 1e4, -0.3, -1.5, -7.25])

    def function(x, poles):
        return [
            *with_gradient(torch.lgamma, x), *with_gradient(torch.digamma, x), poles.lgamma(),
            poles.digamma(), torch.polygamma(2, x[:9]), torch.polygamma(3, x[:9]),
            torch.special.multigammaln(x[4:9], 2),
        ]  # fmt: skip

    poles = torch.tensor([inf, -2.0, -1.0])
    assert_like_aten(function, x, poles, rtol=2e-5, atol=5e-6)


@pytest.mark.slow
def test_bessel():
    """Modified Bessel functions on both sides of the border between their series."""
    x = torch.tensor([0.0, 0.2, -1.0, 3.7, 3.8, -4.0, 12.0])

    def function(x):
        special = torch.special
        return [
            *with_gradient(torch.i0, x), *with_gradient(special.i0e, x),
            *with_gradient(special.i1, x[1:]), *with_gradient(special.i1e, x[1:]),
        ]  # fmt: skip

    assert_like_aten(function, x, rtol=2e-5, atol=1e-6)


def test_normal_distribution():
    """The scaled complement of erf, which the logarithm of the distribution needs far out."""
    x = torch.tensor([-6.0, -2.0, -0.5, 0.0, 0.4, 3.0, 9.0])

    def function(x):
        return [torch.special.erfcx(x), *with_gradient(torch.special.log_ndtr, -x)]

    assert_like_aten(function, x, rtol=2e-5)
