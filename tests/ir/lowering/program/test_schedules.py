"""Schedules of pipelines: the worked tables, and interleaved ones on tiles."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.ir.lowering.program.runs import run_on_tiles
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.lowering.program.build import Schedule
from tremula.ir.lowering.program.pipeline.program import iterations, timetable
from tremula.ir.lowering.program.pipeline.stages import Stages
from tremula.ir.recording import active


def chips_of(n_chips: int, stride: int = 1) -> tuple[int, ...]:
    backward = range(n_chips) if stride > 1 else range(n_chips - 1)
    return (*range(n_chips), *reversed(backward))


def work_of_chips(n_chips: int, n_micro_batches: int, stride: int = 1) -> list[list[str]]:
    """What each chip does in each iteration: F2 forward of micro-batch 2, B2 backward, FB2 both."""
    chips = chips_of(n_chips, stride)
    rows: list[list[str]] = [[] for _ in range(n_chips)]
    for t, stages in enumerate(timetable(len(chips), n_micro_batches, stride)):
        for chip, row in enumerate(rows):
            own = [stage for stage in stages if chips[stage] == chip]
            done = []
            for stage in own:
                is_both = stride == 1 and stage == n_chips - 1
                kind = "FB" if is_both else "F" if stage < n_chips else "B"
                done.append(f"{kind}{(t - stage) // stride}")
            row.append(".".join(done) or "-")
    return rows


def test_three_chips_and_five_micro_batches():
    """Four iterations fill the pipeline, one is full, four flush it."""
    assert work_of_chips(3, 5) == [
        ["F0", "F1", "F2", "F3", "F4.B0", "B1", "B2", "B3", "B4"],
        ["-", "F0", "F1", "F2.B0", "F3.B1", "F4.B2", "B3", "B4", "-"],
        ["-", "-", "FB0", "FB1", "FB2", "FB3", "FB4", "-", "-"],
    ]
    assert work_of_chips(2, 4) == [
        ["F0", "F1", "F2.B0", "F3.B1", "B2", "B3"],
        ["-", "FB0", "FB1", "FB2", "FB3", "-"],
    ]


@pytest.mark.parametrize(
    ("chips", "micro_batches", "n_iterations", "bubble", "stash"),
    [
        (2, 4, 6, 0.200, [3, 1]),
        (3, 5, 9, 0.286, [5, 3, 1]),
        (3, 8, 12, 0.200, [5, 3, 1]),
        (4, 8, 14, 0.273, [7, 5, 3, 1]),
        (4, 16, 22, 0.158, [7, 5, 3, 1]),
        (4, 32, 38, 0.086, [7, 5, 3, 1]),
        (8, 32, 46, 0.179, [15, 13, 11, 9, 7, 5, 3, 1]),
        (8, 64, 78, 0.099, [15, 13, 11, 9, 7, 5, 3, 1]),
    ],
)
def test_grouped_pipelines(chips, micro_batches, n_iterations, bubble, stash):
    """Iterations, bubbles and stashes of the worked table; with 1F1B fewer are in flight."""
    n_stages = 2 * chips - 1
    every = timetable(n_stages, micro_batches)
    assert len(every) == n_iterations
    fill, full = n_stages - 1, max(0, micro_batches - n_stages + 1)
    assert sum(len(stages) == n_stages for stages in every) == full
    assert [count for (stages,), count in iterations(n_stages, micro_batches)][fill : fill + 1] == [
        full or 1
    ] or full == 0
    # Forward and backward of a chip take a slot each: p - 1 of them are idle at both ends.
    work = work_of_chips(chips, micro_batches)
    n_slots = 2 * (micro_batches + chips - 1)
    n_busy = sum(len(cell.split(".")) + cell.count("FB") for cell in work[0] if cell != "-")
    assert round(1 - n_busy / n_slots, 3) == bubble
    grouped = Stages(chips_of(chips), 1)
    interleaved = Stages(chips_of(chips, 2), 2)
    kept = [grouped.n_between(s, 2 * (chips - 1) - s) + 1 for s in range(chips)]
    assert kept == stash
    in_flight = [interleaved.n_between(s, 2 * chips - 1 - s) for s in range(chips)]
    assert in_flight == [chips - s for s in range(chips)]


def test_interleaved_chips_take_turns():
    """A chip computes forward or backward in an iteration, never both; neighbours alternate."""
    assert work_of_chips(2, 3, 2) == [
        ["F0", "-", "F1", "B0", "F2", "B1", "-", "B2"],
        ["-", "F0", "B0", "F1", "B1", "F2", "B2", "-"],
    ]
    rounds = list(iterations(4, 4, 2))
    assert rounds == [
        (((0,), (1,)), 1),
        (((0, 2), (1, 3)), 3),
        (((2,), (3,)), 1),
    ]


class Chain(nn.Module):
    """Linear layers with a stage each, and a connection from the first to the last."""

    def __init__(self, n: int):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(n))

    def forward(self, x, target):
        first = x
        for number, layer in enumerate(self.layers):
            if (recording := active()) is not None:
                recording.start_block(str(number), number)
            x = torch.tanh(layer(x))
        return x, nn.functional.mse_loss(x + first, target)


@pytest.mark.slow
def test_interleaved_on_tiles():
    """Weights and outputs are those of one micro-batch after another; the stash takes less."""
    model, n = Chain(3), 5
    rule = rule_from(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    x = torch.randn(n, 2, 6, generator=torch.Generator().manual_seed(1))
    one_by_one = Schedule(1, n, 1, 1 / n, chip_of_block=(0, 1, 2))
    grouped = replace(one_by_one, stage_of_block=(0, 1, 2))
    result = [
        run_on_tiles(model, [x, x.flip(0)], schedule, rule=rule)
        for schedule in (one_by_one, grouped, replace(grouped, stride=2))
    ]
    for other in result[1:]:
        for ours, theirs in zip(result[0].outputs, other.outputs, strict=True):
            assert torch.equal(ours, theirs)
        for ours, theirs in zip(result[0].weights, other.weights, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    memory = [r.engine.executable.analysis.memory.category("Variables").sum() for r in result]
    assert memory[0] < memory[2] < memory[1]
