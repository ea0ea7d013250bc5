"""More of our own spellings against ATen: margins, samples of images, rows, counts, rounding."""

import pytest
import torch
import torch.nn.functional as F

from tests.ir.like_aten import assert_close, assert_like_aten, gradients
from tremula.ir.run.tile_run import run_on_tiles

nan = float("nan")


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


@pytest.mark.slow
def test_margin_losses():
    """Labels end at the first -1; classes may have weights; every reduction; gradients."""
    labels = torch.tensor([[3, 0, -1, 1, 2, 0], [5, -1, 4, 1, 2, 0], [2, 1, 0, 5, 4, 3]])
    weights = random(6).abs()

    def function(x, labels, weights):
        target = labels[:, 0]
        result = []
        for reduction in ("none", "sum", "mean"):
            several = lambda x, r=reduction: F.multilabel_margin_loss(x, labels, reduction=r)  # noqa: E731
            single = lambda x, r=reduction: F.multi_margin_loss(  # noqa: E731
                x, target, 2, 0.7, weights, reduction=r
            )
            for loss in (several, single):
                result += [loss(x), *gradients(loss, x)]
        return [*result, F.multi_margin_loss(x, target)]

    assert_like_aten(function, random(3, 6), labels, weights, atol=5e-6)


SAMPLERS = (("bilinear", "zeros"), ("bilinear", "reflection"), ("nearest", "border"))
# (mode and padding, whether a volume is read, whether corners are aligned)
EVERY_SAMPLE = [(*s, is_volume, a) for s in SAMPLERS for is_volume in (0, 1) for a in (0, 1)]
SOME_SAMPLES = [(*SAMPLERS[0], 0, 1), (*SAMPLERS[1], 1, 0), (*SAMPLERS[2], 0, 0)]


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(SOME_SAMPLES, id="some", marks=pytest.mark.slow),
        pytest.param(EVERY_SAMPLE, id="all", marks=pytest.mark.wide),
    ],
)
def test_samples_of_images(cases):
    """Images and volumes read at a grid, beyond their borders too, and both gradients."""

    def function(image, volume, grid, grid3):
        result = []
        for mode, padding, is_volume, align in cases:
            x, g = (volume, grid3) if is_volume else (image, grid)
            sample = lambda x, g: F.grid_sample(x, g, mode, padding, bool(align))  # noqa: B023, E731
            result += [sample(x, g), *gradients(sample, x, g)]
        bicubic = lambda x, g: F.grid_sample(x, g, "bicubic", align_corners=False)  # noqa: E731
        return [*result, *gradients(bicubic, image, grid)]

    inputs = random(2, 3, 5, 6), random(1, 2, 3, 4, 5), random(2, 3, 4, 2), random(1, 2, 2, 3, 3)
    assert_like_aten(function, *inputs, rtol=1e-4, atol=2e-4)


@pytest.mark.slow
def test_products_and_distances():
    """Bilinear layers as matrix products, distances of all pairs, and their gradients."""

    def function(a, b, weights):
        return [
            F.bilinear(a, b, weights), *gradients(F.bilinear, a, b, weights), F.pdist(a),
            *gradients(F.pdist, a), F.pdist(b, 1.0),
        ]  # fmt: skip

    assert_like_aten(function, random(4, 5), random(4, 6)[:, 1:], random(3, 5, 5), atol=3e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:index_reduce")  # PyTorch calls it new
def test_order_rows_and_rounding():
    """Medians of numbers, histograms, rows combined by an index, fake quantisation."""
    x = random(4, 6)
    x[1, 2:5] = nan

    def function(x):
        y = x.nan_to_num(0.3)
        rows = torch.tensor([2, 0, 2])
        quantise = lambda y: torch.fake_quantize_per_tensor_affine(y, 0.1, 3, -8, 7)  # noqa: E731
        return [
            *x.nanmedian(1), x.nanmedian(), torch.histc(y, 5, -1, 1), torch.histc(y, 4),
            torch.histc(y[0, :1], 2), y.index_reduce(0, rows, y[:3], "amax"),
            y.index_reduce(0, rows, y[:3], "mean", include_self=False), quantise(y),
            *gradients(quantise, y),
        ]  # fmt: skip

    assert_like_aten(function, x)


def test_embedding_with_a_longest_row():
    """Rows that are looked up and too long are shortened, in the table as well."""
    table, rows = random(5, 3) * 2, torch.tensor([[1, 4], [1, 0]])
    shortened = table.clone()
    wanted = F.embedding(rows, shortened, max_norm=1.0)

    def function(table, rows):
        table = table.clone()
        return [F.embedding(rows, table, max_norm=1.0), table]

    result = run_on_tiles(function, table, rows)
    assert_close(result[0], wanted, "rows")
    assert_close(result[1], shortened, "table")


@pytest.mark.slow
def test_statistics_of_values_and_places():
    """Modes, bins, segments, places of a fixed number, elements by place; weighted covariances."""
    x = torch.tensor([[3.0, 1, 2, 1, 2, 0], [0, 0, 4, 4, 4, 1]])
    lengths, weights = torch.tensor([2, 0, 4]), torch.tensor([1, 2, 1, 0, 3, 1])

    def function(x, lengths, weights):
        reduced = [
            torch.segment_reduce(x[0], kind, lengths=lengths, unsafe=True, initial=1)
            for kind in ("sum", "mean", "max", "min", "prod")
        ]
        return [
            *torch.mode(x, 1), *torch.histogram(x, 4), *torch.histogram(x, x[1, :2] + x[0, 1:3]),
            torch.nonzero_static(x, size=12), torch.nonzero_static(x, size=2),
            torch.take(x, lengths - 2), x.put(lengths, x[0, :3]), *reduced,
            torch.cov(x, fweights=weights), torch.cov(x, aweights=x[1] + 1), torch.corrcoef(x),
            torch.angle(x - 2),
        ]  # fmt: skip

    assert_like_aten(function, x, lengths, weights)


def test_a_tensor_fills_rows_and_has_a_gradient():
    """`index_fill` by a tensor: its gradient is the sum over the rows that it fills, once each."""

    def function(x, index, value):
        value = value.detach().requires_grad_()
        filled = torch.index_fill(x, 0, index, value)
        return torch.autograd.grad(filled, value, torch.ones_like(filled))[0]

    assert_like_aten(function, torch.ones(3, 2), torch.tensor([0, 2, 0]), torch.tensor(5.0))
