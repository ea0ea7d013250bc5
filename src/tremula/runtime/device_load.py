"""What a program takes of the devices of a partition, for the controller's monitors."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tremula.compiler.executable.executable import Executable
from tremula.compiler.report.energy import energy_of, moved_bytes
from tremula.poplar.partition import DeviceLoad, Lease
from tremula.runtime.clock import Clock

SECONDS_BETWEEN_SUMS = 0.5  # a sum walks over all steps of the program


class LoadMeter:
    """Sums up what ran since the program was loaded, now and then, and gives it to the lease."""

    def __init__(self, lease: Lease, executable: Executable):
        self.lease, self._executable = lease, executable
        self._tile_bytes = int(executable.analysis.memory.including_gaps.max(initial=0))
        self._summed_at = float("-inf")

    @contextmanager
    def metered(self, clock: Clock) -> Iterator[None]:
        """Around a run of a program."""
        with self.lease.running():
            yield
            if time.monotonic() - self._summed_at > SECONDS_BETWEEN_SUMS:
                self.lease.report(self._load(clock))
                self._summed_at = time.monotonic()

    def _load(self, clock: Clock) -> DeviceLoad:
        executable, costs = self._executable, self._executable.analysis.costs
        chip = executable.target.chip
        modelled_s = clock.total_cycles / chip.clock_hz
        energy = energy_of(executable, costs, clock.executed, modelled_s, chip)
        moved = moved_bytes(executable, costs, clock.executed)
        return DeviceLoad(
            cycles=clock.total_cycles,
            joules=energy.total,
            modelled_s=modelled_s,
            exchange_bytes=moved.inside,
            host_bytes=moved.outside,
            link_bytes=moved.links,
            tile_bytes=self._tile_bytes,
        )
