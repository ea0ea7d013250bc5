"""A model of six layers, planned on four small chips: compiled once for all tests here."""

import pytest
import torch
from torch import nn

from tremula.explore import Task, plan
from tremula.hardware import chip, single


class Layers(nn.Module):
    """Layers of which the last two are by far the heaviest."""

    def __init__(self, n: int = 4):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(n)])
        self.wide = nn.Sequential(nn.Linear(16, 256), nn.Linear(256, 16))

    def forward(self, x, y):
        x = self.first(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        x = self.wide(x)
        return x, nn.functional.mse_loss(x, y)


@pytest.fixture(scope="session")
def small_task():
    torch.manual_seed(0)
    model = Layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(4, 8), torch.randn(4, 16)
    machine = single(chip("bow").replace(name="Small Bow", n_tiles=8), 2)
    return Task(model, inputs, machine, optimizer=optimizer)


@pytest.fixture(scope="session")
def small_plan(small_task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    told = []
    result = plan(
        small_task, folder=folder, n_workers=1, progress=told.append, batch=24, max_candidates=3
    )
    return result, folder, told
