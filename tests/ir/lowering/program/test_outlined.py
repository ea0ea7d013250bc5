"""Layers of a model as calls of one function: the weights and outputs of layers in place."""

import copy

import pytest
import torch
from torch import Tensor, nn

from tests.ir.lowering.program.runs import run_on_tiles
from tests.ir.steps import train_on_tiles
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.lowering.program.build import Schedule
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.recording import active


class _Layers(nn.Module):
    """Equal layers with a residual connection, and a loss."""

    def __init__(self, n_layers: int) -> None:
        super().__init__()
        layers = [
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(n_layers)
        ]
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        half = len(self.layers) // 2
        for number, layer in enumerate(self.layers):
            if number % half == 0 and (recording := active()) is not None:
                recording.start_block(str(number // half), number // half)
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


@pytest.mark.slow
def test_stages_of_a_pipeline_share_code():
    """Layers within a stage are calls, too, and leave what a pipeline without functions leaves."""
    torch.manual_seed(2)
    model, x = _Layers(6), torch.randn(4, 6, 8)
    rule = rule_from(torch.optim.Adam(model.parameters(), lr=0.1), model.named_parameters())
    schedule = Schedule(1, 4, 1, 1 / 4, chip_of_block=(0, 1), stage_of_block=(0, 1))
    plain, outlined = (
        run_on_tiles(model, [x], schedule, LoweringOptions(outline_threshold=threshold), rule=rule)
        for threshold in (None, -100.0)
    )
    assert len(outlined.engine.executable.steps) < len(plain.engine.executable.steps)
    values = zip(
        (*plain.outputs, *plain.weights), (*outlined.outputs, *outlined.weights), strict=True
    )
    assert all(torch.equal(a, b) for a, b in values)
