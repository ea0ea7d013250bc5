"""Custom operations of decoders: on tiles they give what PyTorch does, and say where rows are."""

import pytest
import torch
from torch.nn import functional

import poptorch
from tremula.garden.models.published.decoder_ops import moved_cache, row_norm, row_softmax


@pytest.fixture(autouse=True)
def _small_chips(monkeypatch):
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")


class Applied(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def on_tiles(function, *inputs):
    model = poptorch.inferenceModel(Applied(function), poptorch.Options().useIpuModel(True))
    return model(*inputs)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


@pytest.mark.parametrize("n_rows", [1, 7], ids=["where it is", "by rows"])
def test_norms_of_rows(n_rows):
    """A row by itself and rows on a tile each are normed alike."""
    x, scale, bias = numbers(n_rows, 1, 24), numbers(24, seed=1), numbers(24, seed=2)
    expected = functional.layer_norm(x.float(), (24,), scale.float(), bias.float())
    result = on_tiles(row_norm, x, scale, bias)
    torch.testing.assert_close(result.float(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("is_stable", [False, True])
def test_softmax_of_rows(is_stable):
    """Rows sum to one, whether or not the largest value is subtracted."""
    x = numbers(2, 3, 1, 16)
    result = on_tiles(lambda x: row_softmax(x, is_stable=is_stable), x)
    torch.testing.assert_close(result.float(), x.float().softmax(-1), atol=3e-3, rtol=3e-3)


@pytest.mark.parametrize("is_operation", [False, True])
def test_a_cache_moves_on(is_operation):
    """New words come first, and as many of the last ones are dropped."""
    past, new = numbers(2, 1, 2, 5, 8), numbers(2, 1, 2, 1, 8, seed=1)
    moved = on_tiles(lambda p, n: moved_cache(p, n, is_operation=is_operation), past, new)
    assert torch.equal(moved, torch.cat([new, past[:, :, :, :-1]], dim=3))
