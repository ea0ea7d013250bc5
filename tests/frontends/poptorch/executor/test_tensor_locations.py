"""Tensors off the chip: optimiser states in streaming memory."""

import pytest
import torch
from torch import nn

import poptorch


def with_loss(module):
    forward = module.forward
    module.forward = lambda x: poptorch.identity_loss(forward(x) ** 2, "mean")
    return module


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_states_in_streaming_memory(replicas):
    """Off the chip, states train the same weights to the bit and take less memory."""
    found, n_bytes = [], []
    for is_on_chip in (True, False):
        torch.manual_seed(0)
        model = with_loss(nn.Linear(300, 40))
        options = poptorch.Options().useIpuModel(True).replicationFactor(replicas)
        location = poptorch.TensorLocationSettings().useOnChipStorage(is_on_chip)
        options.TensorLocations.setOptimizerLocation(location)
        optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
        training = poptorch.trainingModel(model, options, optimizer)
        for _ in range(3):
            training(torch.ones(4, 300))
        state = optimizer.state_dict()["ipu_state"]
        found.append([*(p.detach() for p in model.parameters()), *state.values()])
        memory = training._compiled.core.tiles.program().executable.analysis.memory
        n_bytes.append(int(memory.category("Variables").sum()))
    for on_chip, off_chip in zip(*found, strict=True):
        assert torch.equal(on_chip, off_chip)
    assert n_bytes[1] < n_bytes[0]
