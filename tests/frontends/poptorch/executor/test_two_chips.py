"""Blocks on two chips: forward, backward and update compute what the host does."""

import copy

import pytest
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


class PooledImages(nn.Module):
    """The places of maxima are found by the first stage again, for its backward pass."""

    def __init__(self):
        super().__init__()
        first = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.Flatten())
        self.first = poptorch.BeginBlock(first, ipu_id=0)
        self.second = poptorch.BeginBlock(nn.Linear(2 * 3, 4), ipu_id=1)
        self.loss = nn.MSELoss()

    def forward(self, x, y):
        images = x.reshape(-1, 1, 6, 1).expand(-1, -1, -1, 2)
        return self.loss(self.second(self.first(images)), y)


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TwoBlocks, PooledImages])
def test_two_chips_compute_what_the_host_does(kind):
    """Losses and weights of a model over two chips, with accumulation and AdamW, are the host's."""
    torch.manual_seed(0)
    start = kind()
    on_host = trained(copy.deepcopy(start), on_tiles=False)
    on_tiles = trained(copy.deepcopy(start), on_tiles=True)
    for expected, got in zip(on_host, on_tiles, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stages", [poptorch.AutoStage.SameAsIpu, poptorch.AutoStage.AutoIncrement])
def test_what_comes_before_the_first_block_is_a_stage_on_chip_0(stages):
    """A pipeline whose first part is in no block takes what it takes with a block for it."""

    def compiled(*, is_named):
        torch.manual_seed(0)
        model = TwoBlocks()
        if not is_named:
            poptorch.removeBlocks(model.first)
        options = poptorch.Options().setExecutionStrategy(poptorch.PipelinedExecution(stages))
        options.Training.gradientAccumulation(3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        wrapped = poptorch.trainingModel(model, options, optimizer)
        wrapped.compile(torch.zeros(6, 6), torch.zeros(6, 4))
        tiles = wrapped.tile_program()
        memory = tiles.program().executable.analysis.memory.including_gaps
        return memory.reshape(2, -1).max(axis=1).tolist(), tiles.timing(has_run=False).total_cycles

    (first, second), cycles = compiled(is_named=False)
    assert min(first, second) > max(first, second) / 2
    assert compiled(is_named=True) == ([first, second], cycles)


def test_pipelines_overlap_and_shards_do_not():
    """Both strategies give the same bits; chips of a pipeline work at the same time."""
    torch.manual_seed(0)
    layers = [poptorch.BeginBlock(nn.Linear(256, 256), ipu_id=chip) for chip in range(2)]
    model, x = nn.Sequential(*layers), torch.randn(160, 256)
    outputs, cycles = [], []
    for strategy in (poptorch.PipelinedExecution, poptorch.ShardedExecution):
        options = poptorch.Options().useIpuModel(True).deviceIterations(10)
        options.setExecutionStrategy(strategy(poptorch.AutoStage.SameAsIpu))
        wrapped = poptorch.inferenceModel(model, options)
        outputs.append(wrapped(x))
        cycles.append(wrapped.tile_program().timing(has_run=True).total_cycles)
    assert torch.equal(*outputs)
    assert cycles[0] < cycles[1]


class PaddedBetweenBlocks(nn.Module):
    """The second block reads what is partly a constant, and constants of the first."""

    def forward(self, x):
        poptorch.Block.start("first", ipu_id=0)
        padded, three = nn.functional.pad(x, (1, 0)), torch.full((5,), 3.0)
        poptorch.Block.start("second", ipu_id=1)
        return padded - padded.amax(-1, keepdim=True) + three.sum()


@pytest.mark.parametrize(
    "strategy",
    [
        poptorch.ShardedExecution(poptorch.Stage("first"), poptorch.Stage("second")),
        poptorch.SerialPhasedExecution(poptorch.Phase("first"), poptorch.Phase("second")),
    ],
)
def test_constants_of_one_chip_are_read_on_another(strategy):
    """A padded tensor and a constant of one block are reduced in a block on another chip."""
    options = poptorch.Options().useIpuModel(True).setExecutionStrategy(strategy)
    x, model = torch.arange(8.0).reshape(2, 4), PaddedBetweenBlocks()
    torch.testing.assert_close(poptorch.inferenceModel(model, options)(x), model(x))
