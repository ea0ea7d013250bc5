"""Where an optimiser's states are: with their weights, so that an update exchanges neither."""

import pytest
import torch
from torch import nn

from tests.ir.steps import captured
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.passes import TILE_PASSES, apply
from tremula.ir.step import PARAMETER, STATE
from tremula.poplar.target import IPUModel


class _WithLoss(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        layers = {name: nn.Linear(24, 24, dtype=dtype) for name in ("first", "Accl1___second")}
        self.layers = nn.ModuleDict(layers)

    def forward(self, x):
        first, second = self.layers.values()
        return nn.functional.mse_loss(second(torch.relu(first(x))), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_states_are_laid_out_like_their_weights(dtype):
    """Whatever the types and the names: states of AdamW are floats, also those of halves."""
    model = _WithLoss(dtype)
    rule = rule_from(torch.optim.AdamW(model.parameters()), model.named_parameters())
    step = apply(captured(model, torch.zeros(8, 24, dtype=dtype), rule=rule), TILE_PASSES)
    target = IPUModel("bow", tiles_per_ipu=16).create_device().target
    graph = (built := build_tile_program(step, target, Schedule(), LoweringOptions())).graph
    tensors = graph.state.handles.reads
    weights = {
        slot.name: tensors[built.state_handles[PARAMETER, slot.index].handle]
        for slot in step.inputs
        if slot.kind == PARAMETER
    }
    states = [
        (weights[slot.owner], tensors[built.state_handles[STATE, slot.index].handle])
        for slot in step.inputs
        if slot.kind == STATE and slot.name.startswith("Accl")
    ]
    assert len(states) == 2 * len(weights)
    for weight, state in states:
        assert graph.get_tile_mapping(state) == graph.get_tile_mapping(weight)
        of_state, of_weight = (tensor.runs().start for tensor in (state, weight))
        assert (of_state - of_state.min()).tolist() == (of_weight - of_weight.min()).tolist()
