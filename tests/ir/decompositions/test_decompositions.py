"""Our own spellings of ATen operations against ATen: order, running values, masks, distances."""

import pytest
import torch
import torch.nn.functional as F

from tests.ir.like_aten import assert_like_aten, gradients

aten = torch.ops.aten
nan, inf = float("nan"), float("inf")


@pytest.mark.slow
def test_order_and_running_values():
    """Medians, buckets and running extremes: of equals the later counts, and NaN stays."""
    random = torch.Generator().manual_seed(3)
    a = torch.randn(4, 6, generator=random)
    s = torch.randint(0, 4, (3, 9), generator=random).float()
    q = s.clone()
    q[1, 4] = nan
    levels = torch.tensor([0.0, 0.5, 1.0])

    def function(a, s, q, levels):
        return [
            *q.median(1), s.median(), *q.median(0, True), torch.bucketize(a, levels),
            torch.bucketize(s, levels, right=True), torch.searchsorted(levels, a), *q.cummax(1),
            torch.bucketize(0.3, levels), torch.searchsorted(levels, 0.3, side="right"),
            torch.special.zeta(levels.abs() + 2, 1.5), torch.narrow_copy(q, 0, 1, 1),
            *s.cummin(0), a.logcumsumexp(1), a.masked_scatter(a > 0, s),
            aten.put(a, torch.tensor([1, 7]), levels[:2], True),
        ]  # fmt: skip

    assert_like_aten(function, a, s, q, levels)


@pytest.mark.slow
def test_further_functions():
    """fmax, fmin, copysign, ldexp, hypot and erfinv, where they differ from their neighbours."""
    e = torch.tensor([[nan, 1.0, -inf, inf, 0.0, -0.0], [2.0, nan, 3.0, -0.0, 5.0, -6.0]])
    a = torch.linspace(-1, 1, 13)

    def function(a, e):
        return [
            torch.fmax(e[0], e[1]), torch.fmin(e[0], e[1]), torch.copysign(a, -0.0),
            torch.copysign(e[1], e[0]), torch.ldexp(a, torch.tensor(3)), torch.hypot(e[0], e[1]),
            torch.hypot(a, a + 1), torch.erfinv(a),
        ]  # fmt: skip

    assert_like_aten(function, a, e)


def test_distances():
    """cdist of several norms, and the gradients of both sides."""
    random = torch.Generator().manual_seed(3)
    a, b = torch.randn(4, 6, generator=random), torch.randn(3, 6, generator=random)

    def function(a, b):
        return [
            torch.cdist(a, b), torch.cdist(a, b, 1.0), torch.cdist(a, b, 3.0),
            torch.cdist(a, b, inf), *gradients(torch.cdist, a, b),
            *gradients(lambda x, y: torch.cdist(x, y, 3.0), a, b),
            *gradients(lambda x, y: torch.cdist(x, y, 1.0), a, b),
        ]  # fmt: skip

    assert_like_aten(function, a, b, rtol=3e-5, atol=3e-5)


@pytest.mark.slow
def test_gradients_of_rearrangements():
    """Gradients through borders, windows, diagonals, strides, masks and places."""

    def function(a, image):
        return [
            *gradients(lambda x: F.pad(x, (2, 1), mode="replicate"), a),
            *gradients(lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"), image),
            *gradients(lambda x: F.pad(x, (1, 1), mode="reflect"), a),
            *gradients(lambda x: F.pad(x, (1, 1), mode="circular"), a[None]),
            *gradients(lambda x: x.unfold(1, 3, 2), a),
            *gradients(lambda x: x.diagonal(1), a),
            *gradients(lambda x: x.as_strided((2, 2), (3, 1)), a),
            *gradients(lambda x: x.masked_scatter(a > 0, x * 2), a),
            *gradients(lambda x: x.take(torch.tensor([1, 1, 5])), a),
        ]

    assert_like_aten(function, torch.randn(4, 6), torch.randn(1, 2, 3, 4))


def test_attention():
    """Fused attention and its gradients, causal and with a mask."""

    def function(q, k):
        attention = F.scaled_dot_product_attention
        return [
            attention(q, k, k, is_causal=True),
            *gradients(lambda q, k: attention(q, k, k, is_causal=True), q, k),
            *gradients(lambda q, k: attention(q, k, k, attn_mask=torch.eye(3), scale=0.3), q, k),
        ]

    random = torch.Generator().manual_seed(3)
    q, k = (torch.randn(1, 2, 3, 4, generator=random) for _ in range(2))
    assert_like_aten(function, q, k, rtol=3e-5, atol=3e-5)
