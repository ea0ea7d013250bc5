"""The modelled clock: how often each step ran, and how far each chip has got."""

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.report.report import CountedStep, Execution


class Clock:
    """Cycles of each chip since load. The interpreter advances the same arrays."""

    def __init__(self, executable: Executable):
        costs = executable.analysis.costs
        self.sync, self.exchange = costs.sync, costs.exchange
        self.compute = np.array(costs.compute)  # counted steps are filled in as they run
        # Copies: arrays read from a file are read-only, which Numba takes for another type.
        self.joins, self.is_active = np.array(costs.joins), np.array(costs.is_active)
        self.needs_count = np.array(costs.needs_count)
        self.step_cycles = self.sync + self.exchange + self.compute
        n_steps, n_chips = self.step_cycles.shape
        self.executed = np.zeros(n_steps, np.int64)
        self.cycles_of_chip = np.zeros(n_chips, np.int64)
        self.counted: dict[int, CountedStep] = {}

    @property
    def total_cycles(self) -> int:
        return int(self.cycles_of_chip.max())

    def set_counted(self, step: int, counted: CountedStep, tiles_per_chip: int) -> None:
        """The compute cycles of a step, counted while it ran."""
        self.counted[step] = counted
        self.compute[step] = counted.tile_cycles.reshape(-1, tiles_per_chip).max(axis=1)
        self.step_cycles[step] = self.sync[step] + self.exchange[step] + self.compute[step]
        self.needs_count[step] = False

    def take_counts(self, other: "Clock") -> None:
        """Take over what another clock of the same program has counted."""
        self.compute, self.step_cycles = other.compute.copy(), other.step_cycles.copy()
        self.needs_count, self.counted = other.needs_count.copy(), dict(other.counted)

    def advance(self, step: int) -> None:
        """What interpreter.advance_clock does, for steps that Python runs."""
        self.executed[step] += 1
        cycles = self.step_cycles[step]
        if self.joins[step]:
            self.cycles_of_chip[:] = self.cycles_of_chip.max() + cycles
        else:
            self.cycles_of_chip[self.is_active[step]] += cycles[self.is_active[step]]

    def execution(self) -> Execution:
        """What ran so far, for a report."""
        return Execution(
            self.executed,
            self.cycles_of_chip,
            self.compute,
            ~self.needs_count,
            dict(self.counted),
        )
