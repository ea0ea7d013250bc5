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


_BORDERS = torch.tensor([-12.0, -3.1, -2.0, -0.3, 0.0, 1e-3, 0.4, 2.0, 2.1, 3.0, 3.1, 9.0, 30.0])
_NAMES = [
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0", "airy_ai",
]  # fmt: skip
_POLYNOMIALS = [name for name in dir(torch.special) if "polynomial" in name]


@pytest.mark.slow
def test_bessel_functions_of_a_real_argument():
    """Both sides of the borders between fits, 0, and arguments for which there is no value."""
    x = torch.cat([_BORDERS, torch.tensor([inf, float("nan")])])
    function = lambda x: [getattr(torch.special, name)(x) for name in _NAMES]  # noqa: E731
    assert_like_aten(function, x, rtol=2e-5, atol=2e-6)


@pytest.mark.slow
def test_polynomials_of_any_degree():
    """Each element has its own degree; a negative one gives 0."""
    n = torch.tensor([-2.0, -0.5, 0.0, 1.0, 2.0, 7.0, 12.0]).repeat(5)
    x = torch.linspace(-2, 2, len(n))
    function = lambda x, n: [getattr(torch.special, name)(x, n) for name in _POLYNOMIALS]  # noqa: E731
    assert_like_aten(function, x, n, rtol=2e-5, atol=2e-6)


@pytest.mark.slow
def test_incomplete_gamma_zeta_and_quantiles():
    """Series and fractions to float precision; limits, poles and arguments without a value."""
    nan = float("nan")
    a = torch.tensor([0.0, 1, 0, inf, 1, -1, 2, nan, 0.3, 2.5, 2.5, 9, 9, 30])
    x = torch.tensor([1.0, 0, 0, 1, inf, 1, -1, 1, 0.1, 1.0, 8.0, 3.0, 12.0, 31.0])
    s = torch.tensor([2.0, 2, 1, 0.5, 2.5, 2, 1.01, 4, 9])
    q = torch.tensor([0.0, -1, 3, 3, -2.5, -2.5, 0.3, 7, 12])
    p = torch.tensor([-0.1, 0, 1e-37, 1e-5, 0.1, 0.2, 0.5, 0.8, 0.9, 0.999, 1, 1.1])

    def function(a, x, s, q, p):
        special = torch.special
        return [torch.igamma(a, x), torch.igammac(a, x), special.zeta(s, q), special.ndtri(p)]

    assert_like_aten(function, a, x, s, q, p, rtol=3e-5, atol=2e-6)


def test_bits_of_floats_and_divisors_of_whole_numbers():
    """Neighbours, mantissas and powers are exact, for zeros, tiny numbers and infinities too."""
    x = torch.tensor([0.0, -0.0, 1e-40, -3, inf, float("nan"), 1, -1, 2**-126, 1.5e-45, 7])
    y = torch.tensor([1.0, -1, -1, -3, 0, 1, float("nan"), -2, 0, 0, 9])
    a = torch.tensor([12, -18, 0, 0, 7], dtype=torch.int32)
    b = torch.tensor([18, 12, 5, 0, 13], dtype=torch.int32)

    def function(x, y, a, b):
        halves = torch.nextafter(x.half(), y.half())
        return [torch.nextafter(x, y), halves, *torch.frexp(x), torch.gcd(a, b), torch.lcm(a, b)]

    assert_like_aten(function, x, y, a, b, rtol=0, atol=0)
