"""What a program takes of the devices of a partition, for the controller's monitors."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.report.energy import energy_of, moved_bytes
from tremula.poplar.partition import DeviceLoad, Lease
from tremula.runtime.clock import Clock
from tremula.runtime.forecast import forecast

SECONDS_BETWEEN_SUMS = 0.5  # a sum walks over all steps of the program


class LoadMeter:
    """Sums up what ran since the program was loaded, now and then, and gives it to the lease."""

    def __init__(self, lease: Lease, executable: Executable):
        self.lease, self._executable = lease, executable
        self._summed_at = float("-inf")

    @contextmanager
    def metered(self, clock: Clock) -> Iterator[None]:
        """Around a run of a program."""
        with self.lease.running():
            yield
            if time.monotonic() - self._summed_at > SECONDS_BETWEEN_SUMS:
                cycles = clock.total_cycles
                self.lease.report(self, _load(self._executable, clock.executed, cycles))
                self._summed_at = time.monotonic()


def forecast_load(executable: Executable) -> DeviceLoad:
    """What one run of the first program takes, without running it."""
    foretold = forecast(executable)
    assert foretold.ran is not None, "a forecast is of a run"
    return _load(executable, foretold.ran.executed, foretold.total_cycles)


def _load(executable: Executable, executed: np.ndarray, cycles: int) -> DeviceLoad:
    chip, costs = executable.target.chip, executable.analysis.costs
    modelled_s = cycles / chip.clock_hz
    moved = moved_bytes(executable, costs, executed)
    return DeviceLoad(
        cycles=cycles,
        joules=energy_of(executable, costs, executed, modelled_s, chip).total,
        modelled_s=modelled_s,
        exchange_bytes=moved.inside,
        host_bytes=moved.outside,
        link_bytes=moved.links,
        tile_bytes=int(executable.analysis.memory.including_gaps.max(initial=0)),
    )
