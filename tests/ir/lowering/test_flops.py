"""Flops of a training step on tiles, against PyTorch's own count of its products."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.ir.steps import training_step
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.cost import cost_steps
from tremula.compiler.passes.exchange import exchanges_of
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.passes import TILE_PASSES, apply
from tremula.poplar.target import IPUModel

N_BATCH = 4


class Digits(nn.Module):
    """The network of the MNIST example, narrower, and its loss."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(8, 16, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
            nn.Linear(400, 32), nn.ReLU(), nn.Linear(32, 10), nn.LogSoftmax(1),
        )  # fmt: skip

    def forward(self, images, labels):
        return nn.functional.nll_loss(self.layers(images), labels)


@pytest.mark.slow
def test_mnist_training_step():
    """Products do exactly what PyTorch counts, in all directions; everything else adds little."""
    torch.manual_seed(0)
    model, inputs = Digits(), (torch.rand(N_BATCH, 1, 28, 28), torch.zeros(N_BATCH).long())
    with FlopCounterMode(display=False) as counter:
        model(*inputs).backward()
    step = apply(training_step(model, *inputs), TILE_PASSES)
    target = IPUModel("bow", tiles_per_ipu=16).create_device().target
    built = build_tile_program(step, target, Schedule())
    programs = lower(built.graph, [built.program])
    costs = cost_steps(programs, exchanges_of(programs))
    tables = [costs.compute_sets[i].tables for i in costs.compute_set_of_step if i >= 0]
    products = sum(
        t.n_flops for one in tables for t in one
        if t.codelet.startswith("poplin::") and "ReduceAdd" not in t.codelet
    )  # fmt: skip
    assert products == counter.get_total_flops()
    assert products < costs.n_flops.sum() < 1.1 * products
