"""Sums of padded gradients: no tile reads the padding for all others."""

import torch
from torch import nn

import poptorch
from tests.ir.lowering.program.runs import run_on_tiles
from tests.ir.lowering.program.test_pipeline import sgd, values

WIDTH, N_TILES = 64, 32


class FirstRow(nn.Module):
    """A loss of the first of many rows: the gradients of the others are zeros."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return poptorch.identity_loss(self.dense(x)[:, 0].sum(), "sum")


def test_no_tile_gathers_the_padding():
    """The gradient of a bias sums rows of zeros, which are one element of memory."""
    torch.manual_seed(0)
    model = FirstRow()
    bias = model.dense.bias.detach().clone()
    inputs = [values(1, 4, 60, WIDTH)]
    result = run_on_tiles(model, inputs, rule=sgd(model), n_tiles=N_TILES)
    torch.testing.assert_close(result.weights[1], bias - 0.1 * 4)
    memory = result.engine.executable.analysis.memory
    copies = memory.category("Copy Descriptors")
    assert copies.max() < 1000, "the tile of the zero does not copy it for each row"


class FirstNormalisedRow(nn.Module):
    """A loss of the first of many rows that are normalised."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        return poptorch.identity_loss(self.norm(x)[:, 0].square().sum(), "sum")


def test_no_tile_gathers_the_padding_for_a_norm():
    """Sums in the gradient of a norm read zeros that lie on all tiles."""
    torch.manual_seed(0)
    model = FirstNormalisedRow()
    inputs = [values(1, 4, 60, WIDTH)]
    result = run_on_tiles(model, inputs, rule=sgd(model), n_tiles=N_TILES)
    temporary = result.engine.executable.analysis.memory.temporary.sum(axis=0)
    assert temporary.max() < 2 * temporary.mean()
