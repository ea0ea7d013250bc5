"""Blocks on two chips: forward, backward and update compute what the host does."""

import copy

import torch
from torch import nn

import poptorch


class TwoBlocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = poptorch.BeginBlock(nn.Linear(6, 8), ipu_id=0)
        self.second = poptorch.BeginBlock(nn.Linear(8, 4), ipu_id=1)
        self.loss = nn.MSELoss()

    def forward(self, x, y):
        return self.loss(self.second(torch.tanh(self.first(x))), y)


def trained(model, on_tiles):
    options = poptorch.Options().useIpuModel(on_tiles)
    options.Training.gradientAccumulation(3)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    wrapped = poptorch.trainingModel(model, options, optimizer)
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(6, n, generator=generator) for n in (6, 4))
    losses = [wrapped(x, y) for _ in range(3)]
    wrapped.copyWeightsToHost()
    return [*losses, *(p.detach() for p in model.parameters())]


def test_two_chips_compute_what_the_host_does():
    """Losses and weights of a model over two chips, with accumulation and AdamW, are the host's."""
    torch.manual_seed(0)
    start = TwoBlocks()
    on_host = trained(copy.deepcopy(start), on_tiles=False)
    on_tiles = trained(copy.deepcopy(start), on_tiles=True)
    for expected, got in zip(on_host, on_tiles, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
