"""What was run, and when: kept while a report is wanted, so that it can tell runs apart."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tremula.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a program. `executed` int64[n_steps] says how often each step ran in it."""

    program: int
    name: str
    executed: np.ndarray
    cycles_from: int
    cycles_to: int
    host_start_us: int
    host_end_us: int


@dataclass(slots=True)
class RunLog:
    """The first `most` runs in full; of all others, that there were some."""

    most: int
    runs: list[RunRecord] = field(default_factory=list)
    n_runs: int = 0

    @contextmanager
    def recording(self, clock: Clock, program: int, name: str) -> Iterator[None]:
        """Record what happens in the block as one run."""
        self.n_runs += 1
        if len(self.runs) >= self.most:
            yield
            return
        executed, cycles = clock.executed.copy(), clock.total_cycles
        start_us = time.time_ns() // 1000
        yield
        end_us = time.time_ns() // 1000
        ran = clock.executed - executed
        self.runs.append(
            RunRecord(program, name, ran, cycles, clock.total_cycles, start_us, end_us)
        )
