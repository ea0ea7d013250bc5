"""Sorting, the k largest and running sums against ATen: order of equals, NaN, dimensions, types."""

import torch

from tests.ir.like_aten import assert_like_aten


def test_sort():
    """Equal elements keep their order, NaN is the largest, and any dimension can be sorted."""
    random = torch.Generator().manual_seed(0)
    s = torch.randint(0, 4, (5, 40), generator=random).float()
    s[1, 3] = s[2, 7] = float("nan")
    i = torch.randint(-20, 20, (4, 6), generator=random)

    def function(s, i):
        return [
            *torch.sort(s, stable=True), *torch.sort(s, stable=True, descending=True),
            *torch.sort(s, stable=True, dim=0), *torch.sort(s.t(), stable=True, dim=0),
            *torch.sort(i, stable=True, dim=1), *torch.sort(i.to(torch.int8), stable=True),
            *torch.sort(i > 0, stable=True), *torch.sort(torch.tensor(3.0)),
            *torch.sort(s[:, 10:12].half(), stable=True),
        ]  # fmt: skip

    assert_like_aten(function, s, i)


def test_order_statistics():
    """argsort, topk, kthvalue and msort of distinct elements."""
    d = torch.randperm(200, generator=torch.Generator().manual_seed(0)).float().reshape(5, 40)

    def function(d):
        return [
            *torch.sort(d, 0, True), d.argsort(), d.argsort(0, descending=True), *d.topk(3),
            *d.topk(2, 0, largest=False), *d.half().topk(4), *d.kthvalue(4),
            *d.kthvalue(2, 0, keepdim=True), d.msort(), *d.int().topk(2),
        ]  # fmt: skip

    assert_like_aten(function, d)


def test_running_sums():
    """cumsum and cumprod along any dimension; small integers widen as in PyTorch."""
    i = torch.randint(-20, 20, (4, 6), generator=torch.Generator().manual_seed(0))

    def function(x, i):
        return [
            x.cumsum(0), x.cumsum(-1), x.t().cumsum(0), x.cumprod(1), i.cumsum(1),
            (i > 0).cumsum(0), (i % 3).cumprod(1), torch.ones(5).cumsum(0), i.half().cumsum(-1),
            x[0, 0].cumsum(0),
        ]  # fmt: skip

    assert_like_aten(function, torch.randn(4, 30, generator=torch.Generator().manual_seed(1)), i)


def test_gradients():
    """Gradients of sort, topk and cumsum go back to the places that were chosen."""
    d = torch.randperm(40, generator=torch.Generator().manual_seed(0)).float().reshape(2, 20)

    def function(d):
        x = d.detach().requires_grad_(True)
        y = x.sort(1)[0] * torch.arange(20) + x.cumsum(1)
        return torch.autograd.grad(y.sum() + (x.topk(3)[0] * 2).sum(), x)[0]

    assert_like_aten(function, d)
