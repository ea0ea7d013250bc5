"""How long a call takes on the machine: the modelled clock walked through the tile program."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tremula.compiler.executable import Executable
from tremula.compiler.form import Op, StepKind
from tremula.frontends.torch.outputs import Selection
from tremula.runtime.clock import Clock

Latency = tuple[float, float, float]  # least, most, average, in seconds
Counters = dict[str, list[list[float]]]


@dataclass(frozen=True)
class CallTiming:
    """One call of a model on the machine."""

    total_cycles: int
    clock_hz: float
    transfers: dict[str, list[tuple[float, float]]]  # stream -> begin and end of each, in seconds

    def of_streams(self, prefix: str) -> list[list[tuple[float, float]]]:
        """The transfers of all streams `prefix:0`, `prefix:1`, …, in the order of their numbers."""
        found = {
            int(handle.rpartition(":")[2]): times
            for handle, times in self.transfers.items()
            if handle.rpartition(":")[0] == prefix
        }
        return [found[number] for number in sorted(found)]


def time_call(executable: Executable, step_cycles: np.ndarray | None = None) -> CallTiming:
    """Walk through a program as the machine would, without computing anything.

    A branch that depends on data counts as passed through once. `step_cycles` replaces what the
    compiler knew about steps, where cycles were counted while they ran.
    """
    clock = Clock(executable)
    if step_cycles is not None:
        clock.step_cycles = step_cycles
    clock_hz = executable.target.chip.clock_hz
    transfers: dict[str, list[tuple[float, float]]] = {}
    for number in _steps_in_order(executable):
        step = executable.steps[number]
        began = clock.total_cycles
        clock.advance(number)
        if step.kind in (StepKind.STREAM_IN, StepKind.STREAM_OUT):
            times = (began / clock_hz, clock.total_cycles / clock_hz)
            transfers.setdefault(str(step.detail["handle"]), []).append(times)
    return CallTiming(clock.total_cycles, clock_hz, transfers)


def _steps_in_order(executable: Executable) -> Iterable[int]:
    """The static steps of the first program, each as often as it runs."""
    code, step_of = executable.code.tolist(), executable.step_of.tolist()
    counters: dict[int, int] = {}
    returns: list[int] = []
    passed: set[int] = set()
    pc = executable.entries[0]
    while code[pc][0] != Op.END:
        op, a, b, c = code[pc][:4]
        if step_of[pc] >= 0:
            yield step_of[pc]
        if op == Op.LOOP_BEGIN:
            counters[a] = b
            pc = pc + 1 if b > 0 else c
        elif op == Op.LOOP_END:
            counters[a] -= 1
            pc = b if counters[a] > 0 else pc + 1
        elif op == Op.JUMP:
            pc = a
        elif op == Op.CALL:
            returns.append(pc + 1)
            pc = a
        elif op == Op.RETURN:
            pc = returns.pop()
        elif op in (Op.BRANCH_ZERO, Op.BRANCH_NONZERO) and pc in passed:
            pc = c
        else:
            passed.add(pc)
            pc += 1


def no_counters() -> Counters:
    """What there is before a model ran."""
    return {name: [[]] for name in ("input", "input_complete", "output", "output_complete")}


def perf_counters(timing: CallTiming, selection: Selection, n_outputs: int) -> Counters:
    """When each transfer of a call began and ended, per tensor, in seconds of the machine's clock.

    Inputs have one entry per micro-batch, outputs one per micro-batch that is returned.
    """
    inputs = timing.of_streams("input")
    outputs = timing.of_streams("output-out")[:n_outputs]
    every = range(selection.n_total)
    return {
        "input": _column(inputs, every, selection.n_replicas, 0),
        "input_complete": _column(inputs, every, selection.n_replicas, 1),
        "output": _column(outputs, selection.returned(), selection.n_replicas, 0),
        "output_complete": _column(outputs, selection.returned(), selection.n_replicas, 1),
    }


def _column(
    streams: list[list[tuple[float, float]]], numbers: Iterable[int], n_replicas: int, side: int
) -> list[list[float]]:
    """Replicas run at the same time, so those of one micro-batch share its times."""
    numbers = list(numbers)
    return [[times[number // n_replicas][side] for number in numbers] for times in streams] or [[]]


def latency_between(
    counters: Counters,
    selection: Selection,
    begin: tuple[str, Callable[[Iterable[float]], float]],
    end: tuple[str, Callable[[Iterable[float]], float]],
) -> Latency:
    """From one event to another, over all micro-batches; each with how to join tensors."""
    starts, ends = _by_number(counters, selection, *begin), _by_number(counters, selection, *end)
    times = [ends[number] - starts[number] for number in starts if number in ends]
    if not times:
        return 0.0, 0.0, 0.0
    return min(times), max(times), sum(times) / len(times)


def _by_number(
    counters: Counters,
    selection: Selection,
    event: str,
    join: Callable[[Iterable[float]], float],
) -> dict[int, float]:
    numbers = range(selection.n_total) if event.startswith("input") else selection.returned()
    columns = [column for column in counters[event] if column]
    if not columns:
        return {}
    return {number: join(row) for number, *row in zip(numbers, *columns, strict=True)}


# Each latency: from which event, to which.
HOST_TO_IPU = (("input", min), ("input_complete", max))
COMPUTE = (("input_complete", max), ("output", min))
IPU_TO_HOST = (("output", min), ("output_complete", max))
ROUND_TRIP = (("input", min), ("output_complete", max))
