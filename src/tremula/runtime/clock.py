"""The modelled clock: how often each step ran, and how far each chip has got."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.report.report import ExecutedSteps
from tremula.runtime.counting import CountedSteps, Counts
from tremula.runtime.history import HistoryRecorder


@dataclass(slots=True)
class _Profile:
    """What the clock had seen at some moment, or between two."""

    executed: np.ndarray
    cycles_of_chip: np.ndarray
    counts: Counts

    def plus(self, other: "_Profile", sign: int = 1) -> "_Profile":
        """Both together, or with sign -1 what came after the other."""
        return _Profile(
            self.executed + sign * other.executed,
            self.cycles_of_chip + sign * other.cycles_of_chip,
            self.counts.plus(other.counts, sign),
        )


class Clock:
    """Cycles of each chip since load. The interpreter advances the same arrays."""

    def __init__(self, executable: Executable):
        costs = executable.analysis.costs
        self.sync, self.exchange = costs.sync, costs.exchange
        self.compute = np.array(costs.compute)  # of counted steps: as the last execution took
        # Copies: arrays read from a file need not lie in memory as the interpreter reads them.
        self.joins, self.is_active = np.array(costs.joins), np.array(costs.is_active)
        self.step_cycles = self.sync + self.exchange + self.compute
        self.counted_steps = CountedSteps(executable)
        n_steps, n_chips = self.step_cycles.shape
        self.executed = np.zeros(n_steps, np.int64)
        self.cycles_of_chip = np.zeros(n_chips, np.int64)
        self._is_known = ~np.array(costs.needs_count)  # or taken from another clock
        self.recorder = HistoryRecorder()
        self._counts_steps = True
        self._is_running = False
        self._unprofiled = self._now()  # what ran while profiling was off
        self._disabled_at: _Profile | None = None

    @property
    def total_cycles(self) -> int:
        return int(self.cycles_of_chip.max())

    @property
    def needs_count(self) -> np.ndarray:
        """bool[n_steps]: the compute cycles are known only once it has run."""
        needed = ~self._is_known
        steps = self.counted_steps
        needed[steps.steps] &= steps.counts.times == 0
        return needed

    def take_counts(self, other: "Clock") -> None:
        """Let counted steps take what they took on average on another clock of the program."""
        counted = other.counted_steps
        for step, of_step in counted.counted(counted.counts).items():
            self.compute[step] = of_step.chip_cycles
            self._is_known[step] = True
        self._counts_steps = False
        self.step_cycles = self.sync + self.exchange + self.compute

    def record_counted(self, step: int) -> None:
        """Record what a step took that Python ran, if its cycles are counted."""
        if self.records and self.counted_steps.slot_of_step[step] >= 0:
            self.recorder.add(self.compute[step])

    def advance(self, step: int) -> None:
        """What the interpreter does, for steps that Python runs."""
        self.executed[step] += 1
        cycles = self.step_cycles[step]
        if self.joins[step]:
            self.cycles_of_chip[:] = self.cycles_of_chip.max() + cycles
        else:
            self.cycles_of_chip[self.is_active[step]] += cycles[self.is_active[step]]

    @contextmanager
    def run(self, program: int, *, is_foretold: bool = False) -> Iterator[None]:
        """One run of a program, which begins on all chips together: the host waited for all.

        What is foretold has no time on the host. A run without a step leaves the clock alone: no
        chip has waited for it.
        """
        cycles_before = self.cycles_of_chip.copy()
        self.align()
        self._is_running = True
        self.recorder.begin_run()
        before, start_us, is_done = int(self.executed.sum()), time.time_ns() // 1000, False
        try:
            yield
            is_done = True
        finally:
            self._is_running = False
            n_steps = int(self.executed.sum()) - before
            if n_steps == 0:
                self.cycles_of_chip[:] = cycles_before
            if self.is_profiling:
                host_us = (0, 0) if is_foretold else (start_us, time.time_ns() // 1000)
                self.recorder.end_run(program, n_steps, host_us, is_done=is_done)

    @property
    def records(self) -> bool:
        """Whether branches and counted steps are to be recorded."""
        return self.is_profiling and not self.recorder.is_full

    def align(self) -> None:
        """Let all chips be where the last of them is, unless a program runs."""
        if not self._is_running:
            self.cycles_of_chip[:] = self.cycles_of_chip.max()

    # -- what a report shows -----------------------------------------------------------------------

    @property
    def is_profiling(self) -> bool:
        return self._disabled_at is None

    def disable_profiling(self) -> None:
        """Leave out of reports what runs from now on; the clock itself continues."""
        if self._disabled_at is None:
            self.align()
            self.recorder.miss()
            self._disabled_at = self._now()

    def enable_profiling(self) -> None:
        if self._disabled_at is not None:
            self.align()
            self.recorder.miss()
            left_out = self._now().plus(self._disabled_at, -1)
            self._unprofiled, self._disabled_at = self._unprofiled.plus(left_out), None

    def reset_profiling(self) -> None:
        """Leave out of reports what ran so far."""
        self.align()
        self.recorder.forget()
        self._unprofiled = self._now()
        if self._disabled_at is not None:
            self._disabled_at = self._now()

    def _now(self) -> _Profile:
        counts = self.counted_steps.counts.copy()
        return _Profile(self.executed.copy(), self.cycles_of_chip.copy(), counts)

    def profiled(self) -> _Profile:
        """What ran while profiling was enabled, since load or a reset."""
        return (self._disabled_at or self._now()).plus(self._unprofiled, -1)

    def execution(self) -> ExecutedSteps:
        """What ran so far, for a report."""
        seen = self.profiled()
        counted = self.counted_steps.counted(seen.counts)
        compute = self.compute.copy()
        for step, of_step in counted.items():
            compute[step] = of_step.chip_cycles
        history = replace(self.recorder.history(), counts_steps=self._counts_steps)
        cycles, is_known = seen.cycles_of_chip, ~self.needs_count
        return ExecutedSteps(seen.executed, cycles, compute, is_known, counted, history)
