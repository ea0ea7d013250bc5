"""Gradients of all weights summed over replicas in one go: the same numbers in less time."""

import pytest
import torch
from torch import Tensor, nn

from tests.ir.lowering.program.runs import TileRun, run_on_tiles
from tests.sampling import one_in
from tremula.compiler.program_ir import StepKind
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.lowering.program.build import Schedule
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.passes.shard_update import Shards
from tremula.ir.recording import active

N_REPLICAS, N_ACCUMULATION = 4, 3


class FourWeights(nn.Module):
    """Two layers in two blocks; sizes that four replicas do not divide."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate((self.first, self.second)):
            if (recording := active()) is not None:
                recording.start_block(str(number), number)
            x = torch.tanh(layer(x))
        return nn.functional.mse_loss(x, torch.zeros_like(x))


def trained(*, merges: bool, shards: bool = False, chips=(0, 0), stages=()) -> TileRun:
    model = FourWeights()
    rule = rule_from(torch.optim.Adam(model.parameters(), lr=0.1), model.named_parameters())
    scale = 1 / (N_ACCUMULATION * N_REPLICAS)
    schedule = Schedule(
        1, N_ACCUMULATION, N_REPLICAS, scale, chip_of_block=chips, stage_of_block=stages
    )
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(N_ACCUMULATION * N_REPLICAS, 2, 5, generator=generator)]
    names = tuple(name for name, _ in model.named_parameters())
    return run_on_tiles(
        model,
        inputs,
        schedule,
        LoweringOptions(merges_all_reduces=merges, merges_reduce_scatters=merges),
        rule=rule,
        shards=Shards(N_REPLICAS, names) if shards else None,
    )


def n_crossings(run: TileRun) -> int:
    """Steps that send data from replica to replica."""
    return sum(step.kind is StepKind.CROSS_REPLICA for step in run.engine.executable.steps)


@pytest.mark.parametrize(
    "how",
    one_in(3, [{}, {"shards": True}, {"chips": (0, 1)}, {"chips": (0, 1), "stages": (0, 1)}]),
    ids=["one chip", "shards", "two chips", "pipeline"],
)
def test_merged_sums_over_replicas(how):
    """One collective for each chip trains the weights that one for each weight trains, faster."""
    merged, apart = trained(merges=True, **how), trained(merges=False, **how)
    for ours, theirs in zip(merged.weights, apart.weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert n_crossings(merged) < n_crossings(apart)
    assert merged.cycles < apart.cycles


def test_sums_around_a_ring(monkeypatch):
    """Weights whose sums share a ring's function train as those do that are summed by pairs."""
    by_pairs = trained(merges=False)
    monkeypatch.setattr("tremula.poplibs.gcl.collectives.pairs_are_cheaper", lambda *_: False)
    around = trained(merges=False)
    for ours, theirs in zip(around.weights, by_pairs.weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
