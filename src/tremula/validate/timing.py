"""What a program takes by the cost model, without running it: steps counted along its code."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from tremula.base.errors import MissingPerfEstimate
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.cost import StepCosts, cost_steps
from tremula.compiler.passes.exchange import exchanges_of
from tremula.compiler.program_ir import DATA_DECIDES, LoweredPrograms, Opcode
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Program, Sequence
from tremula.poplar.target import IPUModel, Target

Build = Callable[[Graph, Sequence], Program | None]


@dataclass(frozen=True, slots=True)
class Timing:
    """Cycles of a program, in all and by part; a part is that of each step's slowest chip."""

    target: Target
    cycles: int
    sync: int
    exchange: int
    compute: int
    steps: tuple[tuple[str, int, int], ...]  # name, how often, cycles of one execution
    compute_of_steps: tuple[int, ...]  # of these, those of the vertices

    @property
    def clock_hz(self) -> float:
        return self.target.chip.clock_hz


Timer = Callable[[str | Chip, int, Build], Timing]  # like time_program
_TIMER: ContextVar[Timer | None] = ContextVar("timer", default=None)


def time_program(chip: str | Chip, n_ipus: int, build: Build) -> Timing:
    """Build a program on `n_ipus` chips, find its exchanges and costs, and add up its steps.

    `build` appends to the sequence, or returns the program to time instead of it. Only the passes
    that decide cycles run: nothing is placed in memory, no codelet is compiled.
    """
    timer = _TIMER.get()
    if timer is not None:
        return timer(chip, n_ipus, build)
    return timing_of(lowered_program(chip, n_ipus, build))


@contextmanager
def timed_by(timer: Timer) -> Iterator[None]:
    """Let another function time the programs of workloads, one that has compiled them before."""
    token = _TIMER.set(timer)
    try:
        yield
    finally:
        _TIMER.reset(token)


def lowered_program(chip: str | Chip, n_ipus: int, build: Build) -> LoweredPrograms:
    """The steps of a program on `n_ipus` chips."""
    graph, sequence = Graph(IPUModel(chip, n_ipus).create_target()), Sequence()
    return lower(graph, build(graph, sequence) or sequence)


def timing_of(programs: LoweredPrograms, costs: StepCosts | None = None) -> Timing:
    """The time of the first program by its costs; by default those of its target chip."""
    costs = costs or cost_steps(programs, exchanges_of(programs))
    times = executions(programs)
    if bool((costs.needs_count & (times > 0)).any()):
        raise MissingPerfEstimate(
            "a codelet of this workload has cycles that depend on its data.",
            hint="give the codelet a cycles method",
        )
    of_step = costs.total.max(axis=1)
    return Timing(
        programs.graph.target,
        int(times @ of_step),
        int(times @ costs.sync.max(axis=1)),
        int(times @ costs.exchange.max(axis=1)),
        int(times @ costs.compute.max(axis=1)),
        tuple(
            (step.name, int(n), int(cycles))
            for step, n, cycles in zip(programs.steps, times, of_step, strict=True)
        ),
        tuple(costs.compute.max(axis=1).tolist()),
    )


def executions(programs: LoweredPrograms) -> np.ndarray:
    """int64[n_steps]: how often each step runs, from the counts of loops alone."""
    times = np.zeros(len(programs.steps), np.int64)
    factors, returns = [1], []
    at = programs.entries[0]
    while True:
        op, *operands = programs.code[at].tolist()
        step = int(programs.step_of[at])
        if step >= 0:
            times[step] += factors[-1]
        if op == Opcode.END or (op == Opcode.RETURN and not returns):
            return times
        at = _next(op, operands, at + 1, factors, returns)


def _next(op: int, operands: list[int], after: int, factors: list[int], returns: list[int]) -> int:
    """Where the program goes on; loops are walked once, with their count as a factor."""
    if op in DATA_DECIDES:
        raise MissingPerfEstimate(
            "this workload branches on its data, so its steps cannot be counted beforehand.",
            hint="build it without If, Switch or While",
        )
    if op == Opcode.RETURN:
        return returns.pop()
    if op in (Opcode.CALL, Opcode.JUMP):
        if op == Opcode.CALL:
            returns.append(after)
        return operands[0]
    if op == Opcode.LOOP_BEGIN:
        if operands[1] == 0:
            return operands[2]
        factors.append(factors[-1] * operands[1])
    elif op == Opcode.LOOP_END:
        factors.pop()
    return after
