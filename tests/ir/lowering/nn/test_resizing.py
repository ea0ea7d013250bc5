"""Resizing on tiles against ATen: nearest, linear, cubic, and their gradients."""

import pytest
import torch
import torch.nn.functional as F

from tests.ir.like_aten import assert_like_aten


def gradient(y, x):
    weights = torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(y.dtype)
    return torch.autograd.grad(y, x, weights)[0]


def with_gradients(results, x):
    return [t for y in results for t in (y, gradient(y, x))]


def field():
    return torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.slow
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


@pytest.mark.slow
def test_cubic_and_filtered_resizing():
    """Cubic interpolation, and kernels widened against aliasing where outputs are fewer."""

    def function(x):
        x = x.detach().requires_grad_()
        sizes = ({"size": (13, 5)}, {"scale_factor": 1.5}, {"size": (4, 16)})
        results = [F.interpolate(x, mode="bicubic", **size) for size in sizes]
        results += [F.interpolate(x, size=(4, 16), mode="bicubic", align_corners=True)]
        for mode in ("bilinear", "bicubic"):
            results += [F.interpolate(x, mode=mode, antialias=True, **size) for size in sizes]
        return with_gradients(results, x)

    assert_like_aten(function, field(), atol=5e-6)
