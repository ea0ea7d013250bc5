"""Phased execution: what leaves the chips between phases, and splits that cannot be."""

from functools import cache

import pytest
import torch
from torch import nn

import poptorch

SMALL = pytest.mark.usefixtures("small_chips")


@pytest.fixture
def small_chips(monkeypatch):
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")


class ThreeBlocks(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(40, 40) for _ in range(3))

    def forward(self, x):
        for name, layer in zip("abc", self.layers, strict=True):
            poptorch.Block.start(name)
            x = torch.tanh(layer(x))
        return poptorch.identity_loss(x**2, "mean")


class Trained:
    def __init__(self, strategy, *, weights_leave: bool):
        model = ThreeBlocks()
        options = poptorch.Options().useIpuModel(True).setExecutionStrategy(strategy)
        location = poptorch.TensorLocationSettings().useOnChipStorage(not weights_leave)
        options.TensorLocations.setWeightLocation(location)
        training = poptorch.trainingModel(
            model, options, poptorch.optim.SGD(model.parameters(), 0.1)
        )
        training(torch.linspace(-1, 1, 160).reshape(4, 40))
        self.weights = [p.detach() for p in model.parameters()]
        tiles = training.tile_program()
        self.executable = tiles.program().executable
        self.cycles = tiles.timing(has_run=True).total_cycles

    def n_rows(self, kind: str) -> int:
        buffers = self.executable.host.buffers.values()
        return sum(b.repeats for b in buffers if f"remote:{kind}" in b.handle)


@cache
def sharded() -> Trained:
    stages = poptorch.ShardedExecution(*(poptorch.Stage(n).ipu(k % 2) for k, n in enumerate("abc")))
    return Trained(stages, weights_leave=True)


@SMALL
@pytest.mark.slow
@pytest.mark.parametrize(
    ("liveness", "n_rows"),
    [
        (poptorch.Liveness.OffChipAfterFwd, 2),  # the last phase has both directions
        (poptorch.Liveness.OffChipAfterEachPhase, 4),  # and two gradients between phases
    ],
)
def test_values_leave_between_phases(liveness, n_rows):
    """Weights are equal to the bit, whatever is off chip; each phase fetches those it reads."""
    strategy = poptorch.SerialPhasedExecution("a", "b", "c").setTensorsLiveness(liveness)
    result = Trained(strategy, weights_leave=True)
    for ours, theirs in zip(sharded().weights, result.weights, strict=True):
        assert torch.equal(ours, theirs)
    assert result.n_rows("activation") == n_rows
    assert result.n_rows("parameter") == 6


@SMALL
@pytest.mark.slow
def test_parallel_phases_hide_what_they_fetch():
    """Chips of even and odd phases wait for their own transfers alone, so that these overlap."""
    result = Trained(poptorch.ParallelPhasedExecution("a", "b", "c"), weights_leave=True)
    for ours, theirs in zip(sharded().weights, result.weights, strict=True):
        assert torch.equal(ours, theirs)
    assert result.cycles < sharded().cycles


@pytest.mark.parametrize("strategy", ["SerialPhasedExecution", "PipelinedExecution"])
def test_a_cycle_between_stages_is_rejected(strategy):
    """A stage that reads from a later one is an error with both blocks and the user's line."""
    options = poptorch.Options()
    stages = [poptorch.Stage("a", "c"), poptorch.Stage("b")]
    options.setExecutionStrategy(getattr(poptorch, strategy)(*stages))
    options.Training.gradientAccumulation(8)
    model = poptorch.trainingModel(ThreeBlocks(), options)
    with pytest.raises(poptorch.Error, match=r"Block 'c' .* reads what block 'b'") as error:
        model(torch.ones(8, 40))
    assert "test_phases.py:" in str(error.value)


def test_unknown_schedules_are_rejected():
    """A schedule has one of three names."""
    with pytest.raises(AssertionError, match="grouped, interleaved, sequential"):
        poptorch.PipelinedExecution().useSchedule("interleavd")
