"""Reductions on tiles against ATen: dimensions, types, extremes and places, moments, norms."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ir.like_aten import assert_like_aten

HALF = {"rtol": 1e-2, "atol": 1e-2}
FLOAT = {"rtol": 2e-5, "atol": 1e-5}
inf, nan = float("inf"), float("nan")


def sums_and_extremes(x):
    return [
        x.sum(), x.sum(1), x.sum((0, -1), keepdim=True), x.mean(), x.mean((0, 2)),
        x.mean(-2, keepdim=True), x.prod(), x.prod(1), x.amax(), x.amax((0, 2)),
        x.amin(-1, keepdim=True), x.max(), x.min(), *x.max(1), *x.min(-1, keepdim=True), *x.max(0),
        x.argmax(), x.argmax(1), x.argmin(-1, keepdim=True), x.argmin(),
    ]  # fmt: skip


def moments_and_norms(x):
    norm = torch.linalg.vector_norm
    return [
        x.var(), x.var(1), x.var((0, 2), keepdim=True), x.var(1, correction=0), x.std((0, 1)),
        x.std(2, correction=0), *torch.var_mean(x, 1), *torch.std_mean(x, (0, 2), keepdim=True),
        norm(x), norm(x, 1, dim=1), norm(x, inf, dim=(0, 2)), norm(x, -inf, dim=1),
        norm(x, 3, dim=2, keepdim=True), norm(x, 0, dim=1), torch.logsumexp(x, 1),
        torch.logsumexp(x, (0, 2), keepdim=True),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [FLOAT, HALF], ids=["float", "half"])
def test_sums_extremes_moments_norms(tolerance):
    """Every reduction gives ATen's values for float and for half, which is summed in float."""
    dtype = torch.float16 if tolerance is HALF else torch.float32
    x = (torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(1)) + 0.3).to(dtype)
    assert_like_aten(lambda x: sums_and_extremes(x) + moments_and_norms(x), x, **tolerance)


def test_half_is_summed_in_float():
    """4096 ones in half are 4096, which a running sum in half could not reach."""
    assert_like_aten(lambda x: [x.sum(), x.mean(), x.norm()], torch.ones(4096).half())


@pytest.mark.slow
def test_integers_and_truth():
    """Integers and truth values: types of results, any and all, requested types."""

    def function(i, b, x):
        return [
            i.sum(), i.sum(0), i.prod(1), i.amax(1), *i.max(0), i.argmin(1), i.min(), b.sum(),
            b.sum(1), b.any(), b.any(0), b.any((0, 1)), b.all(), b.all(1, keepdim=True), i.any(1),
            x.all(), b.amax(0), b.amin(1), *b.max(1), i.sum(dtype=torch.float32),
            x.sum(1, dtype=torch.float16), i.to(torch.int16).amax(0), b.prod(0),
        ]  # fmt: skip

    generator = torch.Generator().manual_seed(2)
    i = torch.randint(-3, 4, (3, 4), generator=generator)
    b = torch.rand(3, 4, generator=generator) > 0.4
    assert_like_aten(function, i, b, torch.randn(3, 4, generator=generator), rtol=1e-3, atol=1e-3)


def test_infinities_in_logsumexp():
    """Infinite elements give what ATen gives, not NaN."""
    rows = torch.tensor([[-inf, -inf], [inf, 1.0], [-inf, 2.0], [1.0, 3.0]])
    assert_like_aten(lambda x: [torch.logsumexp(x, 1)], rows)


@settings(max_examples=4)
@given(data=st.data())
def test_any_layout(data):
    """Views of any kind reduce as their values do, over any dimensions."""
    shape = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    order = data.draw(st.permutations(range(len(shape))))
    dims = data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(3))

    def function(x):
        views = [x.permute(order), x[..., ::2], x.unsqueeze(0).expand(3, *shape)[1]]
        result = [v.sum(tuple(dims)) for v in views] + [v.amax(tuple(dims)) for v in views]
        return (
            result
            + [v.argmax(min(dims)) for v in views]
            + [views[0].var(tuple(dims), correction=0)]
        )

    assert_like_aten(function, x)


@pytest.mark.slow
def test_gradients():
    """Gradients through sums, means, extremes, norms and moments."""

    def function(x):
        x = x.detach().requires_grad_()
        results = (
            x.sum(1), x.mean((0, 2)), x.amax(1), x.max(1)[0], x.prod(2), x.var(1), x.std((0, 2)),
            torch.logsumexp(x, 1), torch.linalg.vector_norm(x, dim=1), x.norm(),
        )  # fmt: skip
        return [torch.autograd.grad((r * r).sum(), x)[0] for r in results]

    assert_like_aten(function, torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(4)))


@pytest.mark.filterwarnings("ignore:std_mean.*degrees of freedom")
def test_reductions_of_a_scalar():
    """A variance of one element is not a number, without its correction 0; a sum is the element."""
    x = torch.tensor(3.0)

    def function(x):
        return [
            *torch.std_mean(x),
            x.var(correction=0),
            x.sum(),
            x.mean(),
            x.logsumexp(0),
            x.norm(),
        ]

    assert_like_aten(function, x)
