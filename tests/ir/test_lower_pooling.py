"""Pooling and resizing on tiles against ATen: values, indices, gradients."""

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_maxima(dtype):
    """Of equal maxima the first has index and gradient, as in ATen; padding is never chosen."""

    def function(x):
        x = x.detach().requires_grad_()
        found = []
        for window in (*WINDOWS, {"kernel_size": 2, "dilation": 3}):
            y, places = places_of(x, **window)
            found += [y, places, gradient(y, x)]
        results = (
            F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x[0], 2), F.max_pool1d(x[0], 3, 2),
            F.max_pool3d(x, (1, 2, 2)), F.max_pool2d(x.transpose(2, 3), 2),
        )  # fmt: skip
        return (
            found
            + with_gradients(results, x)
            + list(torch.ops.aten.max_pool3d_with_indices(x, [2, 2, 2], [2, 2, 2]))
        )

    x = torch.randint(-4, 5, (2, 3, 9, 8), generator=torch.Generator().manual_seed(1)).to(dtype)
    assert_like_aten(function, x, rtol=1e-2, atol=1e-2)


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


def test_resizing():
    """Nearest and linear interpolation by whole and by odd factors, corners aligned or not."""

    def function(x):
        x = x.detach().requires_grad_()
        results = (
            F.interpolate(x, scale_factor=2), F.interpolate(x, size=(13, 5)),
            F.interpolate(x, scale_factor=1.5), F.interpolate(x[0], scale_factor=3),
            F.interpolate(x, size=(4, 16), mode="nearest-exact"),
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, size=(13, 5), mode="bilinear", align_corners=True),
            F.interpolate(x[0], size=13, mode="linear"),
            F.interpolate(x.unsqueeze(0), scale_factor=(1, 2, 2), mode="trilinear"),
        )  # fmt: skip
        return with_gradients(results, x)

    assert_like_aten(function, field())
