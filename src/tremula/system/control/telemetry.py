"""What each chip does and draws: counters of its programs, power, and a stated model of heat.

Power is that of the modelled program while it runs, and the chip's idle power otherwise. A die
warms towards its inlet air plus a fixed rise per watt, as a first-order lag; the board follows with
half the rise. These three constants are guesses, here and nowhere else.
"""

import time
from dataclasses import dataclass, field

import numpy as np

from tremula.hardware import Chip

INLET_CELSIUS = 25.0
CELSIUS_PER_WATT = 0.16  # about 70 °C at 285 W
LAG_S = 20.0
_COUNTERS = ("busy_s", "cycles", "joules", "host_bytes", "exchange_bytes", "link_bytes")
Counters = dict[str, float]


@dataclass
class _LastBeat:
    at: float
    counters: Counters
    started_at: float


@dataclass
class ChipColumns:
    """float64[n_chips] columns of a cluster; counters only grow."""

    chip: Chip
    n: int
    counters: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.counters = {name: np.zeros(self.n) for name in _COUNTERS}
        self.link_errors, self.parity_errors = np.zeros(self.n), np.zeros(self.n)
        self.utilisation, self.session = np.zeros(self.n), np.zeros(self.n)
        self.tile_bytes = np.zeros(self.n)
        self.watts = np.full(self.n, self.chip.idle_watts)
        self.die_celsius = INLET_CELSIUS + CELSIUS_PER_WATT * self.watts
        self.at = time.monotonic()

    def warm(self, now: float | None = None) -> None:
        """Let dies warm or cool from when they were last looked at until now."""
        now = time.monotonic() if now is None else now
        goal = INLET_CELSIUS + CELSIUS_PER_WATT * self.watts
        self.die_celsius = goal + (self.die_celsius - goal) * np.exp(
            min(0.0, self.at - now) / LAG_S
        )
        self.at = now

    @property
    def board_celsius(self) -> np.ndarray:
        return INLET_CELSIUS + (self.die_celsius - INLET_CELSIUS) / 2


class Telemetry:
    """Columns of every cluster, in memory: a controller that restarts counts from zero."""

    def __init__(self) -> None:
        self._columns: dict[str, ChipColumns] = {}
        self._last: dict[str, _LastBeat] = {}

    def columns(self, cluster: str, chip: Chip, n: int) -> ChipColumns:
        result = self._columns.get(cluster)
        if result is None or result.n != n:
            result = self._columns[cluster] = ChipColumns(chip, n)
        return result

    def attached(self, lease: str, now: float | None = None) -> None:
        now = time.monotonic() if now is None else now
        self._last[lease] = _LastBeat(now, dict.fromkeys((*_COUNTERS, "modelled_s"), 0.0), now)

    def record_beat(
        self,
        columns: ChipColumns,
        lease: str,
        ipus: list[int],
        counters: Counters,
        now: float | None = None,
    ) -> None:
        """A program's sums since it attached; what is new since then is split over its chips."""
        now = time.monotonic() if now is None else now
        if lease not in self._last:
            self.attached(lease, now)
        last = self._last[lease]
        new = {k: max(0.0, counters.get(k, 0.0) - last.counters.get(k, 0.0)) for k in last.counters}
        columns.warm(now)
        for name in _COUNTERS:
            # Chips of a lease run together: each is busy all the time, and its clock ticks.
            share = 1 if name in ("busy_s", "cycles") else 1 / len(ipus)
            columns.counters[name][ipus] += new[name] * share
        busy = min(1.0, new["busy_s"] / max(now - last.at, 1e-3))
        columns.utilisation[ipus] = busy
        whole = max(now - last.started_at, 1e-3)
        columns.session[ipus] = min(1.0, counters.get("busy_s", 0.0) / whole)
        columns.tile_bytes[ipus] = counters.get("tile_bytes", 0.0)
        columns.watts[ipus] = self._watts(columns.chip, counters, len(ipus), busy)
        self._last[lease] = _LastBeat(
            now, {k: counters.get(k, 0.0) for k in last.counters}, last.started_at
        )

    def _watts(self, chip: Chip, counters: Counters, n_ipus: int, busy: float) -> float:
        idle = chip.idle_watts
        seconds = counters.get("modelled_s", 0.0)
        running = counters.get("joules", 0.0) / seconds / n_ipus if seconds > 0 else idle
        return idle + busy * max(0.0, running - idle)

    def gone(self, columns: ChipColumns, lease: str, ipus: list[int]) -> None:
        """A program gave its chips back: they idle."""
        columns.warm()
        self._last.pop(lease, None)
        columns.utilisation[ipus] = columns.session[ipus] = columns.tile_bytes[ipus] = 0.0
        columns.watts[ipus] = columns.chip.idle_watts
