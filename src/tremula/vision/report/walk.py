"""The order in which steps ran, found again from the control flow and how often each step ran."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.cost import StepCosts
from tremula.compiler.program_ir import Op
from tremula.runtime.run_log import RunRecord

Ints = np.ndarray

# Runs are unrolled as long as the trace is at most so much longer than the list of steps.
UNROLLED_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """Entries in order of execution: entry i is `times[i]` executions of `step[i]`."""

    step: Ints  # int64[n]
    times: Ints  # int64[n]
    start: Ints  # int64[n, n_chips]: where each chip's clock stands
    end: Ints
    first_entry: Ints  # int64[n_runs]
    n_entries: Ints


def trace_of(
    executable: Executable, runs: Sequence[RunRecord], costs: StepCosts, compute: Ints
) -> TraceColumns:
    """The trace of recorded runs, each unrolled if it is short enough, else folded."""
    most = len(executable.steps) + UNROLLED_ENTRIES
    steps, times, counts = [], [], []
    for run in runs:
        order, each = _run_order(executable, run, most - sum(counts))
        steps.append(order)
        times.append(each)
        counts.append(len(order))
    step = np.concatenate([np.empty(0, np.int64), *steps])
    each = np.concatenate([np.empty(0, np.int64), *times])
    begin = [run.cycles_from for run in runs]
    start, end = _clock(step, each, costs, compute, begin, np.array(counts, np.int64))
    n_entries = np.array(counts, np.int64)
    return TraceColumns(step, each, start, end, np.cumsum(n_entries) - n_entries, n_entries)


def _run_order(executable: Executable, run: RunRecord, most: int) -> tuple[Ints, Ints]:
    if int(run.executed.sum()) <= most:
        order = _unrolled(executable, run)
        if order is not None:
            return order, np.ones(len(order), np.int64)
    folded = np.flatnonzero(run.executed)
    return folded, run.executed[folded]


def _unrolled(executable: Executable, run: RunRecord) -> Ints | None:
    """Steps in order; None if no walk agrees with how often each ran."""
    walk = _Walk(executable, run.executed)
    order = walk.run(executable.entries[run.program])
    return None if order is None or walk.left.any() else np.array(order, np.int64)


class _Walk:
    """Follows the instructions. Branches go where steps are left that did run."""

    def __init__(self, executable: Executable, executed: Ints):
        self.code = executable.code.tolist()
        self.step_of = executable.step_of.tolist()
        self.cases = executable.switch_cases.tolist()
        self.left = executed.copy()
        # Every instruction of a walk is a step, or one of a few between two steps.
        self.patience = 20 * (int(executed.sum()) + len(self.code)) + 100

    def run(self, pc: int) -> list[int] | None:
        order: list[int] = []
        counters: dict[int, int] = {}
        calls: list[int] = []
        for _ in range(self.patience):
            step = self.step_of[pc]
            if step >= 0:
                if self.left[step] <= 0:
                    return None
                self.left[step] -= 1
                order.append(step)
            op = self.code[pc][0]
            if op == Op.END:
                return order
            pc = self._next(pc, op, counters, calls)
        return None

    def _next(self, pc: int, op: int, counters: dict[int, int], calls: list[int]) -> int:
        _, a, b, c, _, _ = self.code[pc]
        if op == Op.JUMP:
            return a
        if op == Op.CALL:
            calls.append(pc + 1)
            return a
        if op == Op.RETURN:
            return calls.pop()
        if op == Op.LOOP_BEGIN:
            counters[a] = b
            return pc + 1 if b > 0 else c
        if op == Op.LOOP_END:
            counters[a] -= 1
            return b if counters[a] > 0 else pc + 1
        return self._branch(pc, op)

    def _branch(self, pc: int, op: int) -> int:
        _, a, _, c, d, e = self.code[pc]
        if op == Op.LOOP_FOREVER:
            return a if self._is_left(a) else pc + 1
        if op == Op.SWITCH:
            targets = [target for _, target in self.cases[c:d]]
            return next((t for t in targets if self._is_left(t)), e)
        if op in (Op.BRANCH_ZERO, Op.BRANCH_NONZERO):
            return pc + 1 if self._is_left(pc + 1) and pc + 1 < c else c
        return pc + 1

    def _is_left(self, pc: int) -> bool:
        """Whether the first step from here on has executions left."""
        for _ in range(len(self.code)):
            if self.step_of[pc] >= 0:
                return bool(self.left[self.step_of[pc]] > 0)
            op = self.code[pc][0]
            if op in (Op.END, Op.RETURN):
                return False
            pc = self.code[pc][1] if op in (Op.JUMP, Op.CALL) else pc + 1
        return False


def _clock(
    step: Ints, times: Ints, costs: StepCosts, compute: Ints, begin: list[int], counts: Ints
) -> tuple[Ints, Ints]:
    """(start, end) of entries on each chip, as the engine's clock advances."""
    cycles = costs.sync + costs.exchange + compute
    n_chips = cycles.shape[1]
    if n_chips == 1:
        return _clock_of_one_chip(cycles[:, 0], costs, step, times, begin, counts)
    start, end = np.zeros((2, len(step), n_chips), np.int64)
    joins, is_active = costs.joins, costs.is_active
    first = 0
    for cycles_from, n_entries in zip(begin, counts.tolist(), strict=True):
        now = np.full(n_chips, cycles_from, np.int64)
        for i in range(first, first + n_entries):
            number, n = int(step[i]), int(times[i])
            once = cycles[number]
            if joins[number]:
                start[i] = now.max()
                now = now.max() + (n - 1) * once.max() + once
            else:
                start[i] = now
                now = now + n * once * is_active[number]
            end[i] = now
        first += n_entries
    return start, end


def _clock_of_one_chip(
    cycles: Ints, costs: StepCosts, step: Ints, times: Ints, begin: list[int], counts: Ints
) -> tuple[Ints, Ints]:
    is_counted = costs.joins | costs.is_active[:, 0]
    duration = cycles[step] * is_counted[step] * times
    end = np.cumsum(duration)
    first = np.cumsum(counts) - counts
    before = np.concatenate(([0], end))[first]
    end = end + np.repeat(np.array(begin, np.int64) - before, counts)
    return (end - duration)[:, None], end[:, None]
