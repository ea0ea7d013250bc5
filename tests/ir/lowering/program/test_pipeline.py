"""Pipelines on tiles: the results of one micro-batch after another, in the cycles of a pipeline."""

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import pytest
import torch
from torch import Tensor, nn

from tests.ir.steps import captured
from tests.sampling import WIDE
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.program.pipeline.program import iterations
from tremula.ir.passes import apply, tile_passes
from tremula.ir.recording import active
from tremula.ir.repetition import Repetition
from tremula.ir.run.session import TileSession
from tremula.poplar.target import IPUModel
from tremula.runtime.engine import Engine


def on_chip(name: str, chip: int) -> None:
    """Everything from here on is a separate block."""
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
    engine: Engine


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
    has_running_mean: bool = False,
) -> Run:
    """One call; `inputs` have the micro-batches of all replicas in front, blocks are on `chips`."""
    n_micro = len(inputs[0]) // n_replicas
    n_accumulation = n_micro // n_iterations if rule is not None else 1
    n_iterations = n_iterations if rule is not None else n_micro
    scale = 1 / (n_accumulation * n_replicas)
    repetition = Repetition(n_iterations, n_accumulation, n_replicas, scale)
    schedule = Schedule(n_iterations, n_accumulation, n_replicas, scale, chip_of_block=chips)
    schedule = replace(schedule, has_running_mean=has_running_mean)
    moves = [int(a != b) for a, b in pairwise(chips)]
    stages = (0, *accumulate(moves))
    if pipelined:
        schedule = replace(schedule, stage_of_block=stages)
    passes = tile_passes(schedule.stage_of_block, stages if recomputes else ())
    step = apply(captured(model, *(x[0] for x in inputs), rule=rule), passes, "tiles")
    n_ipus = (max(chips) + 1) * n_replicas
    device = IPUModel("bow", n_ipus=n_ipus, tiles_per_ipu=n_tiles).create_device()
    built = build_tile_program(step, device.target, schedule)
    engine = Engine(built.graph, [built.program])
    engine.load(device)
    session = TileSession(step, built, engine, repetition)
    session.write_weights(list(model.parameters()), list(model.buffers()))
    session.set_hyper([0.1] * sum(slot.kind == "hyper" for slot in step.inputs))
    result: list[Tensor] = []
    session.run(list(zip(*inputs, strict=True)), lambda _, outputs: result.extend(outputs))
    weights, buffers = session.read_weights()
    return Run(result, weights, buffers, engine.clock.total_cycles, engine)


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
    result = [(active, n) for (active,), n in iterations(3, 5)]
    assert result == [((0,), 1), ((0, 1), 1), ((0, 1, 2), 3), ((1, 2), 1), ((2,), 1)]
    assert [(active, n) for (active,), n in iterations(3, 1)] == [((0,), 1), ((1,), 1), ((2,), 1)]


@pytest.mark.parametrize("n_stages", [2, 3, 4])
def test_inference_gives_the_same_bits(n_stages):
    """Outputs of a pipeline are those of one micro-batch after another, bit for bit."""
    model, x = Chain(n_stages), [values(6, 2, 6)]
    chips = tuple(range(n_stages))
    one, many = (run(model, x, chips, pipelined=p) for p in (False, True))
    assert len(many.outputs) == 6
    for expected, got in zip(one.outputs, many.outputs, strict=True):
        assert torch.equal(expected, got)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_stages", "n_micro", "recomputes"),
    [(2, 3, True), (3, 5, False), pytest.param(4, 9, True, marks=WIDE)],
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


class Tied(nn.Module):
    """A table that looks up and projects: the first and the last stage, on one chip."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(8, 4)
        self.middle = nn.Linear(4, 4)

    def forward(self, tokens, targets):
        on_chip("look up", 0)
        x = self.table(tokens)
        on_chip("middle", 1)
        x = torch.relu(self.middle(x))
        on_chip("project", 0)
        return nn.functional.cross_entropy(x @ self.table.weight.t(), targets)


class Apart(Tied):
    """The expected table if the last stage is on a separate chip."""

    def forward(self, tokens, targets):
        on_chip("look up", 0)
        x = self.table(tokens)
        on_chip("middle", 1)
        x = torch.relu(self.middle(x))
        on_chip("project", 2)
        return nn.functional.cross_entropy(x @ self.table.weight.t(), targets)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "chips"), [(Tied(), (0, 1, 0)), (Apart(), (0, 1, 2))])
def test_tied_weights(model, chips):
    """A weight of two stages has the gradients of both, summed or as their running mean."""
    tokens, targets = (
        torch.randint(8, (14, 3), generator=torch.Generator().manual_seed(s)) for s in (0, 1)
    )
    one, many = (
        run(model, [tokens, targets], chips, pipelined=p, rule=sgd(model), n_iterations=2)
        for p in (False, True)
    )
    mean = run(
        model, [tokens, targets], chips, pipelined=True, rule=sgd(model), n_iterations=2,
        has_running_mean=True,
    )  # fmt: skip
    for result in (many, mean):
        torch.testing.assert_close(result.outputs, one.outputs)
        torch.testing.assert_close(result.weights, one.weights)
        names = result.engine.executable.variables.names
        n_sums = sum(name.endswith("/accumulator") for name in names)
        assert n_sums == len(list(model.parameters())) + (len(set(chips)) - 2), "one for each chip"


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norms = nn.ModuleList(nn.BatchNorm1d(3) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

    def forward(self, x):
        for number in range(2):
            on_chip(str(number), number)
            x = torch.relu(self.norms[number](self.layers[number](x)))
        return nn.functional.mse_loss(x, torch.zeros_like(x))


@pytest.mark.slow
@pytest.mark.parametrize("recomputes", [pytest.param(True, marks=WIDE), False])
def test_running_means_are_those_of_the_order(recomputes):
    """Buffers see micro-batches in order; two replicas each have their own."""
    model = Normed()
    one, many = (
        run(
            model,
            [values(8, 4, 3)],
            (0, 1),
            pipelined=p,
            rule=sgd(model),
            n_replicas=2,
            recomputes=recomputes,
        )
        for p in (False, True)
    )
    torch.testing.assert_close(many.outputs, one.outputs)
    torch.testing.assert_close(many.weights, one.weights)
    torch.testing.assert_close(many.buffers, one.buffers)
    assert not torch.equal(many.buffers[0][0], many.buffers[1][0])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.LSTM(3, 4)
        self.end = nn.Linear(4, 2)

    def forward(self, x, y):
        on_chip("0", 0)
        x = self.net(x)[0][-1]
        on_chip("1", 1)
        return nn.functional.mse_loss(self.end(x), y)


@pytest.mark.slow
@pytest.mark.parametrize("recomputes", [True, pytest.param(False, marks=WIDE)])
def test_nets_that_remember(recomputes):
    """States of recurrent nets belong to the micro-batch that is under way.

    Random masks do, too: see test_redrawn.py.
    """
    model, data = Recurrent(), [values(4, 3, 2, 3), values(4, 2, 2, seed=1)]
    one, many = (
        run(model, data, (0, 1), pipelined=p, rule=sgd(model), recomputes=recomputes)
        for p in (False, True)
    )
    torch.testing.assert_close(many.outputs, one.outputs)
    torch.testing.assert_close(many.weights, one.weights)


@pytest.mark.slow
def test_a_full_pipeline_is_as_fast_as_its_slowest_stage():
    """Four equal stages take under 40 % of the cycles; a further micro-batch costs one stage."""
    model = Chain(4, 64, skips=False)
    x = [values(24, 256, 64)]
    one, many, more = (
        run(model, x, (0, 1, 2, 3), pipelined=False),
        run(model, x, (0, 1, 2, 3), pipelined=True),
        run(model, [values(25, 256, 64)], (0, 1, 2, 3), pipelined=True),
    )
    assert many.cycles < 0.4 * one.cycles
    clock, is_active = many.engine.clock, many.engine.clock.is_active
    own = clock.executed[:, None] * clock.step_cycles * is_active
    of_stages = own[~clock.joins].sum(0) / 24
    rest = clock.step_cycles[clock.joins & (clock.executed == 21)].max(1).sum()
    assert more.cycles - many.cycles == pytest.approx(of_stages.max() + rest, rel=0.05)


@pytest.mark.slow
def test_stages_wait_for_transfers_only():
    """Between shifts and streams, no step of a training pipeline waits for another chip."""
    model, data = Apart(), [torch.randint(8, (6, 3)), torch.randint(8, (6, 3))]
    result = run(model, data, (0, 1, 2), pipelined=True, rule=sgd(model)).engine
    steps = zip(result.executable.steps, result.clock.joins, result.clock.executed, strict=True)
    waiting = {step.name for step, joins, n in steps if joins and n > 1}
    assert waiting == {"shift", "Copy"}  # Copy: the streams
    kinds = {step.kind.name for step in result.executable.steps if step.name == "shift"}
    assert kinds == {"COPY"}


@pytest.mark.slow
def test_what_is_kept_takes_its_slots():
    """Stage s keeps 2 (S - 1 - s) micro-batches: of its inputs, or of its results as well."""
    model = Chain(3, 8, skips=False)
    data = [values(5, 4, 8), values(5, 4, 8, seed=1)]
    for recomputes, n_values in ((False, 2), (True, 1)):
        result = run(model, data, (0, 1, 2), pipelined=True, rule=sgd(model), recomputes=recomputes)
        table = result.engine.executable.variables
        shapes = dict(zip(table.names, table.shapes, strict=True))
        assert shapes["ring0-4"] == (4 * 8 * n_values * 4,)
        assert shapes["ring1-3"] == (4 * 8 * n_values * 2,)


class Again(nn.Module):
    """A norm that two stages share."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        on_chip("0", 0)
        x = self.norm(x)
        on_chip("1", 1)
        return self.norm(x)


def test_a_buffer_of_two_stages_is_refused():
    """Later micro-batches would read a buffer before earlier ones have changed it."""
    with pytest.raises(
        UnsupportedOperations,
        match=r"norm.running_mean is read by stage 0 of the pipeline, but stage 1",
    ):
        run(Again(), [values(3, 4, 3)], (0, 1), pipelined=True)


class Back(nn.Module):
    """The first block comes back after the second."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x, y):
        for number, layer in enumerate(self.layers):
            on_chip(str(number % 2), number % 2)
            x = torch.tanh(layer(x))
        return nn.functional.mse_loss(x, y)


@pytest.mark.slow
def test_blocks_may_come_back():
    """What a block does with results of later stages is done there."""
    model, data = Back(), [values(3, 2, 3), values(3, 2, 3, seed=1)]
    one, many = (run(model, data, (0, 1), pipelined=p, rule=sgd(model)) for p in (False, True))
    torch.testing.assert_close(many.outputs, one.outputs)
    torch.testing.assert_close(many.weights, one.weights)
