"""Pipelines on tiles: the results of one micro-batch after another, in the cycles of a pipeline."""

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import pytest
import torch
from torch import Tensor, nn

from tests.ir.steps import captured
from tremula.ir.lowering.build import BuiltProgram, Schedule, build_tile_program
from tremula.ir.lowering.pipeline_program import iterations
from tremula.ir.passes import TILE_PASSES, apply
from tremula.ir.passes.recompute import recompute_stages
from tremula.ir.recording import active
from tremula.ir.session import Repetition, TileSession
from tremula.ir.update_rules import rule_from
from tremula.poplar.target import IPUModel
from tremula.runtime.engine import Engine


def on_chip(name: str, chip: int) -> None:
    """Everything from here on is a block of its own."""
    recording = active()
    if recording is not None:
        recording.start_block(name, chip)


@dataclass
class Run:
    """What a call left, and what it took."""

    outputs: list[Tensor]
    weights: list[Tensor]
    buffers: list[list[Tensor]]  # of each replica
    cycles: int
    built: BuiltProgram


def run(
    model: nn.Module,
    inputs: list[Tensor],
    chips: tuple[int, ...],
    *,
    pipelined: bool,
    rule: object = None,
    n_iterations: int = 1,
    n_replicas: int = 1,
    recomputes: bool = True,
    n_tiles: int = 4,
) -> Run:
    """One call; `inputs` have the micro-batches of all replicas in front, blocks are on `chips`."""
    n_micro = len(inputs[0]) // n_replicas
    n_accumulation = n_micro // n_iterations if rule is not None else 1
    n_iterations = n_iterations if rule is not None else n_micro
    scale = 1 / (n_accumulation * n_replicas)
    repetition = Repetition(n_iterations, n_accumulation, n_replicas, scale)
    schedule = Schedule(n_iterations, n_accumulation, n_replicas, scale, chips)
    moves = [a != b for a, b in pairwise(chips)]
    stages = (0, *accumulate(moves))
    if pipelined:
        schedule = replace(schedule, stage_of_block=stages)
    step = apply(captured(model, *(x[0] for x in inputs), rule=rule), TILE_PASSES)
    if recomputes:
        step = recompute_stages(step, stages)
    n_ipus = (max(chips) + 1) * n_replicas
    device = IPUModel("bow", n_ipus=n_ipus, tiles_per_ipu=n_tiles).create_device()
    built = build_tile_program(step, device.target, schedule)
    engine = Engine(built.graph, [built.program])
    engine.load(device)
    session = TileSession(step, built, engine, repetition)
    session.write_weights(list(model.parameters()), list(model.buffers()))
    session.set_hyper([0.1] * sum(slot.kind == "hyper" for slot in step.inputs))
    found: list[Tensor] = []
    session.run(list(zip(*inputs, strict=True)), lambda _, outputs: found.extend(outputs))
    weights, buffers = session.read_weights()
    return Run(found, weights, buffers, engine.clock.total_cycles, built)


class Chain(nn.Module):
    """Linear layers with a stage each; what comes in is added at the end of the last but one."""

    def __init__(self, n_stages: int, width: int = 6, *, skips: bool = True):
        super().__init__()
        torch.manual_seed(n_stages)
        self.skips = skips
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(n_stages))

    def forward(self, x, *targets):
        first = x
        for number, layer in enumerate(self.layers):
            on_chip(str(number), number)
            x = torch.tanh(layer(x))
            if self.skips and number == len(self.layers) - 1:
                x = x + first
        return (x, nn.functional.mse_loss(x, *targets)) if targets else x


def values(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed))


def sgd(model: nn.Module):
    return rule_from(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())


def test_iterations_ramp_up_and_down():
    """Stage s works on micro-batch t - s; a full pipeline is one loop."""
    found = [(list(active), n) for active, n in iterations(3, 5)]
    assert found == [([0], 1), ([0, 1], 1), ([0, 1, 2], 3), ([1, 2], 1), ([2], 1)]
    assert [(list(a), n) for a, n in iterations(3, 1)] == [([0], 1), ([1], 1), ([2], 1)]


@pytest.mark.parametrize("n_stages", [2, 3, 4])
def test_inference_gives_the_same_bits(n_stages):
    """Outputs of a pipeline are those of one micro-batch after another, bit for bit."""
    model, x = Chain(n_stages), [values(6, 2, 6)]
    chips = tuple(range(n_stages))
    one, many = (run(model, x, chips, pipelined=p) for p in (False, True))
    assert len(many.outputs) == 6
    for expected, got in zip(one.outputs, many.outputs, strict=True):
        assert torch.equal(expected, got)


@pytest.mark.parametrize(
    ("n_stages", "n_micro", "recomputes"), [(2, 3, True), (3, 5, False), (4, 9, True)]
)
def test_training_is_the_same(n_stages, n_micro, recomputes):
    """Losses and weights of a pipeline are those of one micro-batch after another."""
    model = Chain(n_stages)
    data = [values(n_micro, 2, 6), values(n_micro, 2, 6, seed=1)]
    one, many = (
        run(
            model, data, tuple(range(n_stages)), pipelined=p, rule=sgd(model), recomputes=recomputes
        )
        for p in (False, True)
    )
    for expected, got in zip(one.outputs, many.outputs, strict=True):
        torch.testing.assert_close(got, expected)
    for before, expected, got in zip(model.parameters(), one.weights, many.weights, strict=True):
        assert not torch.equal(before, got)
        torch.testing.assert_close(got, expected)
