"""Tensors without dimensions and without elements: wherever a dimension is named, as in ATen."""

import pytest
import torch

from tests.ir.like_aten import assert_like_aten


def _orders(x, i):
    return [
        *x.median(0), *x.mode(0), *x.kthvalue(1, 0), *x.topk(1), *x.sort(-1), x.argsort(0),
        *x.cummax(0), x.cumsum(0), x.logcumsumexp(0),
    ]  # fmt: skip


def _reductions(x, i):
    return [
        x.sum(-1), x.mean(0), x.prod(0), x.amax(-1), x.any(0), x.argmax(0), *x.min(0), x.amin(0),
        *torch.std_mean(x, 0, correction=0), x.logsumexp(0), x.softmax(-1), x.log_softmax(0),
        torch.linalg.vector_norm(x, dim=0), x.count_nonzero(0), x.quantile(0.5, dim=0),
    ]  # fmt: skip


def _places(x, i):
    one = i.reshape(1)
    return [
        x.gather(0, i), x.gather(-1, one), x.reshape(1).gather(0, i), x.scatter(0, i, x * 2),
        x.scatter(0, one, 3.0), x.scatter_add(-1, i, x), x.scatter_reduce(0, i, x * 2, "mean"),
        x.index_select(0, one), x.index_add(0, i, x), x.index_copy(0, one, x.reshape(1) * 2),
        x.index_fill(-1, i, 2.0), x.take(i),
    ]  # fmt: skip


def _views(x, i):
    return [
        x.flip(0), x.flip([]), x.roll(1), x.transpose(0, -1), x.movedim(0, 0), x.squeeze(0),
        x.unsqueeze(-1), x.unfold(0, 1, 1), x.repeat(2), x.repeat_interleave(2), x.expand(3),
        torch.stack([x, x], -1), torch.hstack([x, x]), x.as_strided((2,), (0,)),
    ]  # fmt: skip


@pytest.mark.parametrize("function", [_orders, _reductions, _places, _views])
def test_a_scalar_has_dimension_0(function):
    """Dimensions 0 and -1 of a tensor that has none mean its one element."""
    assert_like_aten(function, torch.tensor(0.5), torch.tensor(0))


def test_an_empty_index_may_have_any_rank():
    """Nothing is looked up or written, whatever shape nothing has."""

    def function(x, i):
        return [x.gather(0, i), x.gather(0, i[0]), x.scatter(0, i, 2.0), x.scatter(0, i[0], 2.0)]

    assert_like_aten(function, torch.arange(5.0), torch.zeros(2, 0, dtype=torch.int64))


@pytest.mark.parametrize("shape", [(3, 0), (3, 1), (3, 2)])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_moments_of_few_elements_are_nan(shape):
    """A mean of nothing, and a variance with no element more than its correction, are NaN."""

    def function(x):
        return [
            x.mean(1), *torch.var_mean(x, 1), *torch.std_mean(x, 1), x.var(1), x.std(1),
            x.var(1, correction=2), x.var(1, correction=0), x.sum(1),
        ]  # fmt: skip

    assert_like_aten(function, torch.randn(shape, generator=torch.Generator().manual_seed(0)))
