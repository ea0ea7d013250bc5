"""Ways to say things in PyTorch that a recording turns into plain operations, run on tiles."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.ir.like_aten import assert_like_aten, gradients
from tremula.ir.errors import CaptureError
from tremula.ir.run.tile_run import run_on_tiles


def test_results_given_by_out_and_tensors_changed_in_shape():
    """`out=` writes a tensor that exists; squeeze_ after a write keeps earlier shapes apart."""

    def function(x):
        product = torch.empty(3)
        torch.mv(x, x[0], out=product)
        row = x.narrow(0, 0, 1).clone()
        row.mul_(2).squeeze_(0)
        return [product, row, x.quantile(0.3, 1), torch.vander(x[0])]

    assert_like_aten(function, torch.randn(3, 5, generator=torch.Generator().manual_seed(1)))


def test_spectral_norm_in_training():
    """Power iterations write their vectors with `out=`; weights come from them."""
    torch.manual_seed(1)
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3))
    names = [name for name, _ in (*layer.named_parameters(), *layer.named_buffers())]
    tensors = [t.detach().clone() for t in (*layer.parameters(), *layer.buffers())]

    def function(x, *state):
        state = dict(zip(names, [t.clone() for t in state], strict=True))
        return torch.func.functional_call(layer, state, (x,))

    assert_like_aten(function, torch.randn(4, 6), *tensors)


def test_known_values():
    """What constants tell is known while a model is recorded: numbers, shapes, repetitions."""

    def function(x):
        counts = torch.tensor([2, 0, 1])
        n = int((counts + torch.tensor([1, 1, 1])).sum())
        return [x.repeat_interleave(counts * 2, 0), x.flatten()[:n], counts.nonzero()]

    assert_like_aten(function, torch.arange(15.0).reshape(3, 5))


def test_slices_by_known_tensors():
    """Bounds that constants tell are numbers, in whatever way they were computed."""

    def function(x):
        span = torch.tensor(min(x.shape[0], 3)) - torch.ones((), dtype=torch.int64)
        y = x.clone()
        y[span - 1 : span] = 0
        return [x[3 - span : 3 + span], x[: span * 2, 1], y]

    assert_like_aten(function, torch.arange(10.0).reshape(5, 2))


@pytest.mark.parametrize("p", [-1.0, 0.0, 1.0])
def test_a_draw_that_decides_nothing_is_known(p):
    """A layer that is never skipped, or always, needs no draw: `torch.rand([]) < 0` is false."""

    def function(x):
        return [x if torch.rand([]) < p else 2 * x, x + 1 if torch.rand(()) >= p else x]

    (once, more) = run_on_tiles(function, torch.ones(3))
    assert once.tolist() == [1.0 if p == 1 else 2.0] * 3
    assert more.tolist() == [1.0 if p == 1 else 2.0] * 3


def test_a_draw_that_decides_is_refused():
    """Whether a layer is skipped with some probability is not known while a model is recorded."""
    with pytest.raises(CaptureError, match="aten::item"):
        run_on_tiles(lambda x: x if torch.rand([]) < 0.5 else 2 * x, torch.ones(3))


def test_values_written_through_a_view_are_not_known():
    """A constant that a view of it changed has other elements than it was made with."""

    def function(x):
        counts = torch.zeros(3, dtype=torch.int64)
        counts[1:].add_(2)
        return x.repeat_interleave(counts, 0)

    with pytest.raises(CaptureError, match="how many rows the result has depends on values"):
        run_on_tiles(function, torch.ones(3, 5))


@pytest.mark.slow
def test_bags_of_embeddings():
    """Sums, means and maxima of rows in bags of equal and of other sizes, padding left out."""
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(9, 4, generator=generator)
    rows = torch.randint(0, 9, (3, 5), generator=generator)
    shares = torch.rand(3, 5, generator=generator)

    def function(table, rows, shares):
        result = []
        for mode in ("sum", "mean", "max"):
            for padding in (None, 3):
                bag = lambda t, m=mode, p=padding: F.embedding_bag(rows, t, mode=m, padding_idx=p)  # noqa: E731
                result += [bag(table), *gradients(bag, table)]
            starts = torch.tensor([0, 2, 2, 7])
            some = lambda t, m=mode: F.embedding_bag(rows.flatten(), t, starts, mode=m)  # noqa: B023, E731
            result += [some(table), *gradients(some, table)]
        return [*result, F.embedding_bag(rows, table, mode="sum", per_sample_weights=shares)]

    assert_like_aten(function, table, rows, shares)


def test_slopes_and_variances():
    """rrelu draws slopes in training only; variances below eps count as it."""

    def function(x, y, v):
        drawn = F.rrelu(x, 0.2, 0.4, training=True)
        ratio = torch.where(x < 0, drawn / x, 0.3)
        loss = lambda x, v: F.gaussian_nll_loss(x, y, v, full=True, eps=0.2)  # noqa: E731
        return [
            F.rrelu(x), *gradients(F.rrelu, x), ((ratio >= 0.2) & (ratio < 0.41)).all(), loss(x, v),
            *gradients(loss, x, v),
        ]  # fmt: skip

    assert_like_aten(function, torch.randn(4, 6), torch.randn(4, 6), torch.rand(4, 6))
