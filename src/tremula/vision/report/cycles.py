"""Cycles of a report: the trace, and what tiles do in any stretch of it, pooled."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tremula.base.errors import MissingProfileData
from tremula.vision.report.matrices import Matrix
from tremula.vision.report.schema import pool_of_level
from tremula.vision.report.tables import ReportTables

Ints = np.ndarray


@dataclass(frozen=True, slots=True)
class Trace:
    """Entries in order of execution; see docs/vision.md."""

    step: Ints  # int64[n]
    times: Ints
    start: Ints  # int64[n, n_ipus]
    end: Ints


@dataclass(frozen=True, slots=True)
class Window:
    """Pooled rows: row i covers entries or steps edges[i] … edges[i+1]-1."""

    edges: Ints  # int64[n + 1]
    cells: Ints  # int64[n, n_tiles]


@dataclass(frozen=True, slots=True)
class Phases:
    """Cycles of each tile in compute, exchange, sync and idle: int64[n, n_tiles] each."""

    edges: Ints
    compute: Ints
    exchange: Ints
    sync: Ints
    idle: Ints


class ReportCycles(ReportTables):
    """Questions about time."""

    @property
    def n_entries(self) -> int:
        return len(self.trace.step)

    @cached_property
    def trace(self) -> Trace:
        return Trace(*(self.column(f"trace.{name}") for name in ("step", "times", "start", "end")))

    def by_ipu(self, name: str) -> Ints:
        """[n_steps, n_ipus]: a column of `steps_by_ipu`."""
        return self.table("steps_by_ipu")[name].reshape(self.n_steps, self.n_ipus)

    def chip_cycles(self, name: str) -> Ints:
        """[n_steps, n_ipus]: the same, and 0 for chips that do not take part in a step."""
        return self.by_ipu(name) * (self.by_ipu("is_active") | self.by_ipu("joins"))

    def step_cycles(self, step: int) -> Phases:
        """One execution of a step on every tile: Phases of one row."""
        self.check_step(step)
        edges = np.array([step, step + 1])
        compute, exchange = (self.matrix(n).rows(step, step + 1) for n in ("compute", "exchange"))
        sync, total = (self.chip_cycles(n)[step : step + 1] for n in ("sync", "cycles"))
        return self._phases(edges, compute, exchange, sync, total)

    def _phases(
        self, edges: Ints, compute: Ints, exchange: Ints, sync: Ints, total: Ints
    ) -> Phases:
        """Idle is what is left of the chip's time: int64[n, n_ipus] sync and total."""
        sync = np.repeat(sync, self.tiles_per_ipu, axis=1)
        idle = np.repeat(total, self.tiles_per_ipu, axis=1) - compute - exchange - sync
        return Phases(edges, compute, exchange, sync, idle)

    def window(self, name: str, first: int, last: int, max_rows: int) -> Window:
        """At most `max_rows` rows that pool first … last-1.

        Of trace entries for `compute` and `exchange`, of steps for `live`; the ends may stand out a
        little, to where stored rows begin and end.
        """
        if name not in ("compute", "exchange", "live"):
            raise MissingProfileData(
                f"there is no window of {name!r}.", hint="use compute, exchange or live"
            )
        n = self.n_steps if name == "live" else self.n_entries
        first, last = max(0, first), min(n, last)
        if last <= first or max_rows < 1:
            return Window(np.array([first]), np.zeros((0, self.n_tiles), np.int64))
        return self._pooled(name, first, last, max_rows)

    def _pooled(self, name: str, first: int, last: int, max_rows: int) -> Window:
        """From the coarsest stored level that is fine enough, pooled further as needed."""
        pooled = self.pooled_matrix(name)
        per_row = -(-(last - first) // max_rows)
        level = max(
            (k for k in range(len(pooled.levels)) if pool_of_level(k) <= per_row), default=0
        )
        unit = pool_of_level(level)
        if level:  # rows start and end where the level's rows do
            per_row = -(-(last - first + 2 * unit) // (max_rows * unit)) * unit
        begin = first // unit
        end = -(-last // unit)
        rows = self.pooled_rows(name, begin, end, level)
        group = per_row // unit
        reduce = np.maximum if name == "live" else np.add
        starts = np.arange(0, len(rows), group)
        cells = reduce.reduceat(rows, starts, axis=0)
        edges = np.append((begin + starts) * unit, min(end * unit, pooled.n_rows))
        return Window(edges, cells)

    def pooled_matrix(self, name: str) -> Matrix:
        """Where coarser levels of `compute`, `exchange` or `live` are stored."""
        return self.matrix(name if name == "live" else f"trace_{name}")

    def pooled_rows(self, name: str, begin: int, end: int, level: int) -> Ints:
        """Rows of a level. Trace entries themselves are rows of steps, as often as they ran."""
        if level or name == "live":
            return self.pooled_matrix(name).rows(begin, end, level)
        steps, times = self.trace.step[begin:end], self.trace.times[begin:end]
        return self.matrix(name).take(steps) * times[:, None]

    def phases(self, first: int, last: int, max_rows: int) -> Phases:
        """Trace entries first … last-1 in at most `max_rows` rows, split four ways."""
        compute = self.window("compute", first, last, max_rows)
        exchange = self.window("exchange", first, last, max_rows)
        starts = compute.edges[:-1]
        if not len(starts):
            nothing = compute.cells
            return Phases(compute.edges, nothing, nothing, nothing, nothing)
        lasting = slice(starts[0], compute.edges[-1])
        step, times = self.trace.step[lasting], self.trace.times[lasting, None]
        at = starts - starts[0]
        sync, total = (
            np.add.reduceat(self.chip_cycles(name)[step] * times, at, axis=0)
            for name in ("sync", "cycles")
        )
        return self._phases(compute.edges, compute.cells, exchange.cells, sync, total)
