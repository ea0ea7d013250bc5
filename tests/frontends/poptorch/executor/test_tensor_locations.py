"""Tensors off the chip or sharded over replicas: equal results at other costs."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from tremula.compiler.program_ir import StepKind
from tremula.ir.run.session import shards_of

pytestmark = pytest.mark.slow
KINDS = ("Weight", "Optimizer", "Accumulator", "Activation")


@pytest.fixture(autouse=True)
def _small_chips(monkeypatch):
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")


class TwoLayers(nn.Module):
    """Two equal layers, so that remote buffers can repeat over them."""

    def __init__(self, width: int = 40):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        x = torch.tanh(self.second(torch.tanh(self.first(x))))
        return poptorch.identity_loss(x**2, "mean")


def off_chip(least: int = 2) -> "poptorch.TensorLocationSettings":
    return poptorch.TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(least)


def sharded(*, on_chip: bool = True) -> "poptorch.TensorLocationSettings":
    location = poptorch.TensorLocationSettings().useOnChipStorage(on_chip)
    return location.useReplicatedTensorSharding(True).minElementsForReplicatedTensorSharding(41)


class Trained:
    """Two calls on tiles: weights and states afterwards, and what the program took."""

    def __init__(self, kinds=(), *, location=None, replicas=1, stages=1, optimizer="Adam", **more):
        torch.manual_seed(0)
        model, accumulation = TwoLayers(), 2 * stages
        options = poptorch.Options().useIpuModel(True).replicationFactor(replicas)
        options.Training.gradientAccumulation(accumulation)
        if stages == 2:
            poptorch.BeginBlock(model.first, "first", 0)
            poptorch.BeginBlock(model.second, "second", 1)
        for kind in kinds:
            getattr(options.TensorLocations, f"set{kind}Location")(location or off_chip())
        optimizer = getattr(poptorch.optim, optimizer)(model.parameters(), lr=0.1, **more)
        training = poptorch.trainingModel(model, options, optimizer)
        x = torch.randn(2 * replicas * accumulation, 40)
        for _ in range(2):
            training(x)
        state = optimizer.state_dict()["ipu_state"]
        self.values = [*(p.detach() for p in model.parameters()), *state.values()]
        tiles = training.tile_program()
        self.executable = tiles.program().executable
        self.cycles = tiles.timing(has_run=True).total_cycles
        memory = self.executable.analysis.memory
        self.n_variable_bytes = int(memory.category("Variables").sum())

    def count(self, kind: StepKind) -> int:
        return sum(step.kind is kind for step in self.executable.steps)


@cache
def plain(replicas: int = 1, stages: int = 1) -> Trained:
    return Trained(replicas=replicas, stages=stages)


@pytest.mark.parametrize("kind", KINDS)
def test_off_the_chip_nothing_changes_but_costs(kind):
    """Each kind of tensor off the chip trains the same weights to the bit, in more cycles."""
    here, there = plain(), Trained([kind])
    for ours, theirs in zip(here.values, there.values, strict=True):
        assert torch.equal(ours, theirs)
    assert there.cycles > here.cycles
    if kind != "Activation":  # of so few there is always one that is used
        assert there.n_variable_bytes < here.n_variable_bytes
    assert there.count(StepKind.REMOTE_READ) > 0 == here.count(StepKind.REMOTE_READ)


def test_a_pipeline_with_everything_off_the_chip():
    """Stages fetch for themselves; activations wait for their backward stage in rings of rows."""
    here, there = plain(stages=2), Trained(KINDS, stages=2)
    for ours, theirs in zip(here.values, there.values, strict=True):
        assert torch.equal(ours, theirs)
    assert there.n_variable_bytes < here.n_variable_bytes
    rings = [b for b in there.executable.host.buffers.values() if "ring" in b.handle]
    assert rings
    assert {ring.repeats for ring in rings} == {2}  # 2 (S - 1 - s) of stage 0, of two


def test_weights_are_fetched_by_every_part_that_reads_them():
    """Forward, backward and update fetch a weight each; the update alone stores it.

    Equal layers are rows of one remote buffer; what is smaller than the least size stays.
    """
    result = Trained(["Weight"], location=off_chip(least=41))
    # The first layer's weight has no reader in the backward pass: its input needs no gradient.
    assert result.count(StepKind.REMOTE_READ) == 2 + 1 + 2
    assert result.count(StepKind.REMOTE_WRITE) == 2
    (buffer,) = result.executable.host.buffers.values()
    assert (buffer.n_elements, buffer.repeats) == (1600, 2)


@pytest.mark.parametrize(
    ("kinds", "replicas", "is_exact"),
    [
        (["Optimizer"], 2, True),
        (["Optimizer", "Weight"], 2, True),
        (KINDS, 3, False),  # sums of shards are taken in another order
    ],
)
def test_replicas_share_out_updates(kinds, replicas, is_exact):
    """Shards train the same weights and states, of which each replica holds a part."""
    location = sharded(on_chip=is_exact)
    here, there = plain(replicas), Trained(kinds, replicas=replicas, location=location)
    for ours, theirs in zip(here.values, there.values, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0 if is_exact else 1e-4)
        assert not is_exact or torch.equal(ours, theirs)
    assert there.n_variable_bytes < here.n_variable_bytes
    if not is_exact:
        lengths = {b.n_elements for b in there.executable.host.buffers.values()}
        assert -(-1600 // 3) in lengths
        assert 1600 not in {
            b.n_elements for b in there.executable.host.buffers.values() if "state" in b.handle
        }


def test_norms_of_shards_are_those_of_the_whole():
    """LAMB and clipping need norms, which are completed over replicas."""
    settings = {"optimizer": "LAMB", "replicas": 2}
    here, there = Trained(**settings), Trained(["Optimizer"], location=sharded(), **settings)
    for ours, theirs in zip(here.values, there.values, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_shards_are_equal_and_padded():
    """30 elements over 4 replicas: shards of 8, the last two elements of the last are padding."""
    parts = shards_of(np.arange(1.0, 31.0), 4)
    assert [len(part) for part in parts] == [8] * 4
    assert parts[3].tolist() == [25, 26, 27, 28, 29, 30, 0, 0]
