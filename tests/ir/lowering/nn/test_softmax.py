"""Softmax and its logarithm on tiles against ATen, forward and backward, along any dimension."""

import pytest
import torch
import torch.nn.functional as F

from tests.ir.like_aten import assert_like_aten


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_softmaxes(dtype):
    """Both functions and their gradients along each dimension, of plain and of viewed tensors."""

    def function(x, weights):
        x = x.detach().requires_grad_()
        results = [f(v, dim=d) for f in (F.softmax, F.log_softmax) for v, d in (
            (x, 0), (x, 1), (x, -1), (x.transpose(0, 2), 1), (x[:, ::2], 1), (x[0, 0], 0),
        )]  # fmt: skip
        results += [x[0, 0, 0].softmax(0), F.softmin(x, dim=1)]
        grads = []
        for result in results:
            weight = weights.flatten()[: result.numel()].view(result.shape)
            grads += torch.autograd.grad(result, x, weight, retain_graph=True)
        return results + grads

    generator = torch.Generator().manual_seed(1)
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype is torch.float16 else {}
    x, weights = (torch.randn(4, 5, 6, generator=generator).to(dtype) for _ in range(2))
    assert_like_aten(function, x * 3, weights, **tolerance)


def test_masked_and_large():
    """Large values do not overflow; masked elements are 0; a half tensor can give floats."""

    def function(x, h):
        masked = x.masked_fill(x > 0, float("-inf"))
        return [
            (x * 1000).softmax(1), masked.softmax(1), masked.log_softmax(1),
            torch.softmax(h, 1, dtype=torch.float32),
        ]  # fmt: skip

    x = torch.randn(6, 7, generator=torch.Generator().manual_seed(2))
    x[:, 0] = -1
    assert_like_aten(function, x, x.half())
