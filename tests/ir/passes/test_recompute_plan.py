"""Recomputation: the worked examples, and steps that keep what they say."""

import pytest
import torch
from torch import nn

from tests.ir.lowering.program.runs import run_on_tiles
from tests.ir.steps import captured
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.lowering.program.build import Schedule
from tremula.ir.nodes import schema_name
from tremula.ir.origin import BACKWARD, ORIGIN
from tremula.ir.passes import apply, tile_passes
from tremula.ir.passes.recompute_plan import (
    IDEAL,
    POPART,
    cost_of_chain,
    intervals,
    kept_values,
)


def test_fifteen_layers():
    """The slides' example: intervals of 5, 4, 3, 2, 1; 25 operations, 5 live instead of 15."""
    assert [part.start for part in intervals(15)] == [0, 5, 9, 12, 14]
    result, all_kept = cost_of_chain(15), cost_of_chain(15, None)
    assert (result.n_forward, result.n_live) == (25, 5)
    assert (all_kept.n_forward, all_kept.n_live) == (15, 15)


@pytest.mark.parametrize("k", [6, 7, 8, 9, 10, 14])
def test_triangular_numbers(k):
    """K (K + 1) / 2 values: K² operations and K live."""
    result = cost_of_chain(k * (k + 1) // 2)
    assert (result.n_forward, result.n_live) == (k * k, k)


@pytest.mark.parametrize(
    ("n", "forward", "live"), [(15, 18, 12), (25, 31, 19), (32, 42, 22), (100, 136, 64)]
)
def test_the_damped_plan_of_popart(n, forward, live):
    """K = int(0.75 (⌊√2N⌋ - 1)), and everything behind the intervals is kept."""
    result = cost_of_chain(n, POPART)
    assert (result.n_forward, result.n_live) == (forward, live)


class Tanhs(nn.Module):
    def __init__(self, n: int, width: int = 4):
        super().__init__()
        torch.manual_seed(0)
        self.n = n
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        x = x * self.scale
        for _ in range(self.n):
            x = torch.tanh(x)
        return nn.functional.mse_loss(x, torch.zeros_like(x))


def step_of(model, x, mode):
    rule = rule_from(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    return apply(captured(model, x, rule=rule), tile_passes(recomputation=mode), "tiles"), rule


def test_a_chain_keeps_the_beginnings_of_intervals():
    """Of 15 equal layers in a step: 0, 5, 9, 12 and 14."""
    step, _ = step_of(Tanhs(15), torch.ones(3, 4), None)
    tanhs = [node for node in step.graph.nodes if schema_name(node) == "aten::tanh"]
    assert [tanhs.index(n) for n in tanhs if n in kept_values(tanhs, IDEAL)] == [0, 5, 9, 12, 14]


def test_fewer_values_are_live():
    """With the layers of a whole step, too, a few more operations run and far fewer values live."""
    most = {}
    for mode in (None, IDEAL):
        step, _ = step_of(Tanhs(15), torch.ones(3, 4), mode)
        nodes = list(step.graph.nodes)
        order = {node: index for index, node in enumerate(nodes)}
        tanhs = [node for node in nodes if schema_name(node) == "aten::tanh"]
        backward = [n for n in nodes if ORIGIN in n.meta and n.meta[ORIGIN].phase == BACKWARD]
        ends = {n: max(order[user] for user in n.users) for n in tanhs}
        live = [sum(order[n] < order[at] <= ends[n] for n in tanhs) for at in backward]
        most[mode] = (len(tanhs), max(live))
    assert most[None] == (15, 15)
    assert 20 <= most[IDEAL][0] <= 28
    assert most[IDEAL][1] <= 6


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Linear(6, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)
        )

    def forward(self, x, target):
        return nn.functional.mse_loss(self.layers(x), target)


@pytest.mark.slow
def test_every_mode_trains_the_same_weights():
    """What is computed again is what was computed before, to the bit."""
    model, x = Normed(), torch.randn(1, 3, 6, generator=torch.Generator().manual_seed(2))
    rule = rule_from(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    plain = run_on_tiles(model, [x, x], Schedule(), rule=rule)
    for mode in (IDEAL, POPART, "norms", "everything"):
        result = run_on_tiles(model, [x, x], Schedule(), rule=rule, recomputation=mode)
        for ours, theirs in zip(plain.weights, result.weights, strict=True):
            assert torch.equal(ours, theirs), mode
