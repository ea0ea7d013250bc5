"""Layers of a model as calls of one function: the weights and outputs of layers in place."""

import copy

import pytest
import torch
from torch import Tensor, nn

from tests.ir.steps import train_on_tiles
from tremula.ir.lowering.tiles import LoweringOptions


class _Layers(nn.Module):
    """Equal layers with a residual connection, and a loss."""

    def __init__(self, n_layers: int) -> None:
        super().__init__()
        layers = [
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(n_layers)
        ]
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return nn.functional.mse_loss(x, torch.ones_like(x))


@pytest.mark.slow
def test_training_of_outlined_layers():
    """Forward, backward and updates as calls leave what a program without functions leaves."""
    torch.manual_seed(2)
    model, x = _Layers(4), torch.randn(6, 8)
    trained = {}
    for threshold in (None, -100.0):
        options = LoweringOptions(outline_threshold=threshold)
        trained[threshold] = train_on_tiles(copy.deepcopy(model), x, options=options)
    plain, outlined = trained[None], trained[-100.0]
    assert outlined.n_steps < plain.n_steps
    values = zip(
        (*plain.outputs, *plain.weights), (*outlined.outputs, *outlined.weights), strict=True
    )
    assert all(torch.equal(a, b) for a, b in values)
