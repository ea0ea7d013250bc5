"""A costed program as a timeline: what chips do by themselves, where they wait for each other.

    Local            cycles of each chip between two joins
    Join             a step that begins on all chips when the last is ready: a transfer, a sum
                     over replicas
    RepeatedEvents   a part that repeats

A timeline can be read for other chips than were built (`mapped`): of a pipeline whose stages hold
equal layers, a chip with seven layers is one with a layer, and six times what another, with two,
takes longer than it.
"""

from dataclasses import dataclass

import numpy as np

from tremula.base.passes import garbage_collected_later
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.cost import StepCosts, cost_steps
from tremula.compiler.passes.exchange import exchanges_of
from tremula.compiler.passes.overlap import hide_transfers
from tremula.compiler.program_ir import LoweredPrograms, Opcode
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Program

Cycles = np.ndarray  # float64[n_chips]


@dataclass(frozen=True, slots=True)
class Local:
    cycles: Cycles


@dataclass(frozen=True, slots=True)
class Join:
    cycles: Cycles
    name: str = ""


@dataclass(frozen=True, slots=True)
class RepeatedEvents:
    count: int
    body: "Events"


Events = tuple[Local | Join | RepeatedEvents, ...]


@dataclass(frozen=True, slots=True)
class ChipTimeline:
    """What a program does, on chips of one replica."""

    events: Events
    n_chips: int
    clock_hz: float

    @property
    def cycles(self) -> float:
        """From the first step to the last chip's last one."""
        return float(_walk(self.events, np.zeros(self.n_chips)).max())

    @property
    def seconds(self) -> float:
        return self.cycles / self.clock_hz

    @property
    def local_cycles(self) -> float:
        """What the busiest chip does by itself: no transfers, no waiting."""
        return float(_local(self.events, self.n_chips).max())

    def mapped(self, local: np.ndarray, joined: np.ndarray) -> "ChipTimeline":
        """For other chips: float[n_new, n_chips], twice, say how often they do as a built one."""
        return ChipTimeline(_mapped(self.events, local, joined), len(local), self.clock_hz)


@garbage_collected_later()
def timeline_of(graph: Graph, program: Program) -> ChipTimeline:
    """Lower and cost a program; nothing is placed in memory, and no codelet compiled."""
    programs = lower(graph, program)
    exchanges = exchanges_of(programs)
    costs = cost_steps(programs, exchanges)
    costs = hide_transfers(costs, programs.code, programs.step_of, programs.steps, exchanges)
    return timeline_of_costs(programs, costs)


def timeline_of_costs(programs: LoweredPrograms, costs: StepCosts) -> ChipTimeline:
    walk = _Reader(programs, costs)
    events, _ = walk.read(programs.entries[0])
    target = programs.graph.target
    return ChipTimeline(events, target.n_ipus, target.chip.clock_hz)


class _Reader:
    """Reads instructions into events."""

    def __init__(self, programs: LoweredPrograms, costs: StepCosts):
        self.code, self.step_of = programs.code.tolist(), programs.step_of.tolist()
        self.names = [step.name for step in programs.steps]
        self.total, self.joins = costs.total.astype(float), costs.joins
        self.local = np.where(costs.is_active, self.total, 0.0)
        self.functions: dict[int, Events] = {}

    def read(self, pc: int) -> tuple[Events, int]:
        """The events up to the end of a program, function or loop's body, and where that is."""
        events: list[Local | Join | RepeatedEvents] = []
        while True:
            op, *operands = self.code[pc]
            step = self.step_of[pc]
            if step >= 0:
                self._add(events, step)
            if op in (Opcode.END, Opcode.RETURN, Opcode.LOOP_END):
                return tuple(events), pc
            if op == Opcode.LOOP_BEGIN:
                body, end = self.read(pc + 1)
                if operands[1]:
                    events.append(RepeatedEvents(operands[1], body))
                pc = end + 1
            elif op == Opcode.CALL:
                self._call(events, operands[0])
                pc += 1
            else:  # a branch that depends on data counts as passed through
                pc = operands[0] if op == Opcode.JUMP else pc + 1

    def _add(self, events: list[Local | Join | RepeatedEvents], step: int) -> None:
        if self.joins[step]:
            events.append(Join(self.total[step], self.names[step]))
        else:
            _append(events, Local(self.local[step]))

    def _call(self, events: list[Local | Join | RepeatedEvents], pc: int) -> None:
        if pc not in self.functions:
            self.functions[pc] = self.read(pc)[0]
        for event in self.functions[pc]:
            _append(events, event)


def _append(
    events: list[Local | Join | RepeatedEvents], event: Local | Join | RepeatedEvents
) -> None:
    last = events[-1] if events else None
    if isinstance(last, Local) and isinstance(event, Local):
        events[-1] = Local(last.cycles + event.cycles)
    else:
        events.append(event)


def _walk(events: Events, clock: Cycles) -> Cycles:
    for event in events:
        if isinstance(event, Local):
            clock = clock + event.cycles
        elif isinstance(event, Join):
            clock = clock.max() + event.cycles
        else:
            clock = _repeat(event, clock)
    return clock


def _repeat(loop: RepeatedEvents, clock: Cycles) -> Cycles:
    """Iterations are walked until one takes what the last one took; the rest are alike."""
    delta = None
    for done in range(loop.count):
        after = _walk(loop.body, clock)
        step, clock = after - clock, after
        if delta is not None and np.allclose(delta, step):
            return clock + step * (loop.count - done - 1)
        delta = step
    return clock


def _local(events: Events, n_chips: int) -> Cycles:
    total = np.zeros(n_chips)
    for event in events:
        if isinstance(event, Local):
            total = total + event.cycles
        elif isinstance(event, RepeatedEvents):
            total = total + event.count * _local(event.body, n_chips)
    return total


def _mapped(events: Events, local: np.ndarray, joined: np.ndarray) -> Events:
    result: list[Local | Join | RepeatedEvents] = []
    for event in events:
        if isinstance(event, Local):
            result.append(Local(local @ event.cycles))
        elif isinstance(event, Join):
            result.append(Join(joined @ event.cycles, event.name))
        else:
            result.append(RepeatedEvents(event.count, _mapped(event.body, local, joined)))
    return tuple(result)
