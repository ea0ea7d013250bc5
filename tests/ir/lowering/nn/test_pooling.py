"""Pooling on tiles against ATen: values, indices, gradients."""

import pytest
import torch
import torch.nn.functional as F

from tests.ir.like_aten import assert_like_aten


def gradient(y, x):
    weights = torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(y.dtype)
    return torch.autograd.grad(y, x, weights)[0]


def with_gradients(results, x):
    return [t for y in results for t in (y, gradient(y, x))]


def field(dtype=torch.float32):
    return torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(1)).to(dtype)


WINDOWS = (
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "stride": 2, "padding": (1, 0), "ceil_mode": True},
)


def places_of(x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    """Values and places of maxima; the function of torch.nn refuses to give them to a recording."""
    sizes = [
        s if isinstance(s, tuple | list) else [s, s]
        for s in (kernel_size, stride, padding, dilation)
    ]
    return torch.ops.aten.max_pool2d_with_indices(x, *map(list, sizes), ceil_mode)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_maxima(dtype):
    """Of equal maxima the first has index and gradient, as in ATen; padding is never chosen."""

    def function(x):
        x = x.detach().requires_grad_()
        result = []
        for window in (*WINDOWS, {"kernel_size": 2, "dilation": 3}):
            y, places = places_of(x, **window)
            result += [y, places, gradient(y, x)]
        results = (
            F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x[0], 2), F.max_pool1d(x[0], 3, 2),
            F.max_pool3d(x, (1, 2, 2)), F.max_pool2d(x.transpose(2, 3), 2),
        )  # fmt: skip
        return (
            result
            + with_gradients(results, x)
            + list(torch.ops.aten.max_pool3d_with_indices(x, [2, 2, 2], [2, 2, 2]))
        )

    x = torch.randint(-4, 5, (2, 3, 9, 8), generator=torch.Generator().manual_seed(1)).to(dtype)
    assert_like_aten(function, x, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_averages(dtype):
    """Averages with and without padding counted, other divisors, even and uneven windows."""

    def function(x):
        x = x.detach().requires_grad_()
        results = [F.avg_pool2d(x, **window) for window in WINDOWS]
        results += [F.avg_pool2d(x, count_include_pad=False, **window) for window in WINDOWS]
        results += [
            F.avg_pool2d(x, 3, 2, divisor_override=5), F.avg_pool1d(x[0], 3, 2, 1),
            F.avg_pool2d(x[0], 2), F.adaptive_avg_pool2d(x, (3, 4)),
            F.adaptive_avg_pool2d(x, (4, 5)), F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool1d(x[0], 3), F.lp_pool2d(x.abs() + 0.1, 2, 2),
        ]  # fmt: skip
        if dtype is torch.float32:  # ATen has no half
            results += [F.avg_pool3d(x, (1, 2, 2)), F.avg_pool3d(x, 3, 2, 1)]
        return with_gradients(results, x)

    tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype is torch.float16 else {}
    assert_like_aten(function, field(dtype), **tolerance)


@pytest.mark.slow
def test_adaptive_maxima():
    """As many maxima as wanted, from windows of equal and of unequal sizes, and their gradients."""
    aten = torch.ops.aten

    def function(x):
        x = x.detach().requires_grad_()
        results = (
            F.adaptive_max_pool2d(x, (3, 4)), F.adaptive_max_pool2d(x, (4, 5)),
            F.adaptive_max_pool1d(x[0], 3), F.adaptive_max_pool2d(x[0], (None, 1)),
            F.adaptive_max_pool3d(x, (2, 3, 5)), F.adaptive_max_pool3d(x, (1, 3, 4)),
        )  # fmt: skip
        places = [aten.adaptive_max_pool2d(x, [4, 5])[1], aten.adaptive_max_pool3d(x, [2, 3, 5])[1]]
        return with_gradients(results, x) + places

    x = torch.randint(-4, 5, (2, 3, 9, 8), generator=torch.Generator().manual_seed(1)).float()
    assert_like_aten(function, x)


@pytest.mark.slow
def test_places_of_maxima_are_results():
    """`return_indices`: of equal, adaptive and fractional windows; and unpooling puts them back."""
    x, draws = torch.randn(2, 3, 9, 8), torch.rand(2, 3, 2)

    def function(x, draws):
        values, places = F.max_pool2d(x, 2, return_indices=True)
        return [
            values, places, F.max_unpool2d(values, places, 2),
            *F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
            *F.max_pool1d(x[0], 3, 2, return_indices=True),
            *F.fractional_max_pool2d_with_indices(
                x, (2, 3), (4, 3), _random_samples=draws, return_indices=True
            ),
        ]  # fmt: skip

    assert_like_aten(function, x, draws)
