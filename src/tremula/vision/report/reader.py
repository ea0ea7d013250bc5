"""Reads report files, lazily and read-only; everything that shows a report goes through here."""

import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tremula.base.columns import inflate, unpack
from tremula.base.errors import FileLoadError, MissingProfileData, suggest
from tremula.vision.report.database import DatabaseKind, DatabaseReader
from tremula.vision.report.matrices import Matrix
from tremula.vision.report.schema import (
    ADDED_COLUMNS,
    APPLICATION,
    COLUMN_TABLES,
    SCHEMA_VERSION,
    TABLES,
    pool_of_level,
    report_path,
    reports_instead,
)

if TYPE_CHECKING:
    from tremula.compiler.executable.executable import Executable


Ints = np.ndarray
Table = dict[str, Any]  # a column is an int64 or float64 array, or a list of text

_REPORT = DatabaseKind(
    name="report",
    application=APPLICATION,
    schema_version=SCHEMA_VERSION,
    tables=TABLES,
    wanted="give a profile.pop that Tremula wrote",
    again="write the report again",
    instead=reports_instead,
    may_grow=False,
)
_MAX_QUERY_ROWS, _MAX_QUERY_S = 10_000, 2.0
# Facts that all code below relies on.
_NEEDED = ("n_steps", "has_run")
_SIZES = ("n_ipus", "tiles_per_ipu", "n_tiles", "n_replicas", "n_bytes_per_tile", "clock_hz")


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


@dataclass(frozen=True, slots=True)
class LiveSet:
    """Variables that need memory somewhere, largest first."""

    variable: Ints
    n_bytes: Ints
    always_live: Ints  # bool


def open_report(path: str | os.PathLike[str]) -> "ReportReader":
    """A reader of a report file, or of the `profile.pop` in a folder."""
    return ReportReader(path)


class ReportReader(DatabaseReader):
    """One report: its tables, cycles, memory and tile program.

    Nothing is read before it is asked for; most things are then kept.
    """

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(report_path(path) if Path(path).is_dir() else path, _REPORT)
        self._tables: dict[str, Table] = {}
        self._columns: dict[str, Ints] = {}
        self._matrices: dict[str, Matrix] = {}
        try:
            self.target: dict[str, Any] = self.facts("target")
            self._check_sizes()
        except BaseException:
            self.close()
            raise

    def _check_sizes(self) -> None:
        for facts, keys in ((self.info, _NEEDED), (self.target, _SIZES)):
            for key in keys:
                value = facts.get(key)
                if isinstance(value, bool | int | float) and 0 <= value < 2**53:
                    continue
                raise self.damaged(f"says {value!r} for {key!r}")
        is_sound = self.n_tiles == self.n_ipus * self.tiles_per_ipu and 0 < self.n_tiles <= 1 << 24
        if not is_sound:
            raise self.damaged(
                f"has {self.n_tiles} tiles on {self.n_ipus} chips of {self.tiles_per_ipu}"
            )

    def __repr__(self) -> str:
        ran = f"{self.info['total_cycles']:,} cycles" if self.has_run else "not run"
        chip = self.target.get("chip", "?")
        return f"ReportReader({self.path.name}: {chip}, {self.n_steps:,} steps, {ran})"

    def _repr_html_(self) -> str:
        # The one import upwards: notebooks look for this method on the object they show.
        from tremula.vision.analysis.notebook import report_html

        return report_html(self)

    # -- sizes -------------------------------------------------------------------------------------

    @property
    def has_run(self) -> bool:
        return bool(self.info["has_run"])

    @property
    def n_steps(self) -> int:
        return int(self.info["n_steps"])

    @property
    def n_tiles(self) -> int:
        return int(self.target["n_tiles"])

    @property
    def n_variables(self) -> int:
        return len(self.column("variable.always_live"))

    @property
    def n_ipus(self) -> int:
        return int(self.target["n_ipus"])

    @property
    def tiles_per_ipu(self) -> int:
        return int(self.target["tiles_per_ipu"])

    @property
    def n_replicas(self) -> int:
        return int(self.target["n_replicas"])

    def check_step(self, step: int) -> None:
        if not 0 <= step < self.n_steps:
            raise MissingProfileData(
                f"step {step} does not exist: the report has {self.n_steps}.",
                hint=f"use 0 to {self.n_steps - 1}",
            )

    def check_tile(self, tile: int) -> None:
        if not 0 <= tile < self.n_tiles:
            raise MissingProfileData(
                f"tile {tile} does not exist: the report has {self.n_tiles}.",
                hint=f"use 0 to {self.n_tiles - 1}",
            )

    # -- tables, columns, matrices -----------------------------------------------------------------

    @cached_property
    def options(self) -> dict[str, str]:
        return dict(self.execute("SELECT name, value FROM options"))

    @cached_property
    def versions(self) -> dict[str, str]:
        return dict(self.execute("SELECT name, value FROM versions"))

    def table(self, name: str) -> Table:
        """All columns of a table, in the order of its rows; arrays are read-only."""
        if name not in COLUMN_TABLES:
            raise MissingProfileData(
                f"a report has no table {name!r}.", hint=suggest(name, COLUMN_TABLES)
            )
        with self.lock:
            if name not in self._tables:
                self._tables[name] = self._read_table(name)
            return self._tables[name]

    def _read_table(self, name: str) -> Table:
        declared = self.execute(f"PRAGMA table_info({name})")
        rows = self.execute(f"SELECT * FROM {name} ORDER BY rowid")
        listed = zip(*rows, strict=True) if rows else ((),) * len(declared)
        found = {}
        for (_, column, kind, *_), values in zip(declared, listed, strict=False):
            found[column] = self._as_column(name, column, kind, values)
        for column in ADDED_COLUMNS.get(name, ()):
            if column not in found:
                found[column] = self._as_column(name, column, "INTEGER", [0] * len(rows))
        return found

    def _as_column(self, table: str, column: str, kind: str, values: Sequence[object]) -> object:
        try:
            if kind == "TEXT":
                return [str(v) for v in values]
            array = np.array(values, np.float64 if kind == "REAL" else np.int64)
        except (TypeError, ValueError, OverflowError):
            raise self.damaged(f"has values of the wrong type in {table}.{column}") from None
        array.flags.writeable = False
        return array

    def column(self, name: str) -> Ints:
        """A long column, as int64 or float64."""
        with self.lock:
            if name not in self._columns:
                rows = self.execute(
                    "SELECT dtype, shape, data FROM columns WHERE name = ?", (name,)
                )
                if not rows:
                    raise self.damaged(f"has no column {name!r}")
                dtype, shape, data = rows[0]
                self._columns[name] = unpack(data, dtype, self._shape(shape), f"column {name!r}")
            return self._columns[name]

    def _shape(self, text: object) -> tuple[int, ...]:
        try:
            return tuple(json.loads(str(text)))
        except (ValueError, TypeError):
            raise self.damaged(f"has a column of shape {text!r}") from None

    def matrix(self, name: str) -> Matrix:
        """A matrix of docs/vision.md's table."""
        with self.lock:
            if name not in self._matrices:
                self._matrices[name] = Matrix.of(self, name, self.n_tiles)
            return self._matrices[name]

    def query(self, sql: str, parameters: Sequence[object] = ()) -> tuple[list[str], list[tuple]]:
        """Column names and rows of a user's read-only SQL: at most 10,000 rows and 2 seconds."""
        deadline = time.monotonic() + _MAX_QUERY_S
        with self.lock:
            self._database.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
            try:
                cursor = self._database.execute(sql, parameters)
                rows = cursor.fetchmany(_MAX_QUERY_ROWS)
                names = [d[0] for d in cursor.description or ()]
                cursor.close()
            except (sqlite3.Error, sqlite3.Warning) as error:
                raise MissingProfileData(
                    f"the query failed: {error}.",
                    hint=f"one SELECT, at most {_MAX_QUERY_S:g} s; tables: {', '.join(TABLES)}",
                ) from None
            finally:
                self._database.set_progress_handler(None, 0)
        return names, rows

    # -- time --------------------------------------------------------------------------------------

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
        """Idle is the rest of the chip's time; sync and total are int64[n, n_ipus]."""
        sync = np.repeat(sync, self.tiles_per_ipu, axis=1)
        idle = np.repeat(total, self.tiles_per_ipu, axis=1) - compute - exchange - sync
        return Phases(edges, compute, exchange, sync, idle)

    def window(self, name: str, first: int, last: int, max_rows: int) -> Window:
        """At most `max_rows` rows that pool first … last-1.

        Of trace entries for `compute` and `exchange`, of steps for `live`; the ends may lie a
        little further out, where stored rows begin and end.
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
        """Rows of a level; a trace entry's is its step's row, times how often it ran."""
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

    # -- memory ------------------------------------------------------------------------------------

    def live_at(self, step: int, tile: int | None = None) -> LiveSet:
        """What needs memory at a step, on a tile or on all of them."""
        self.check_step(step)
        return self._live(int(self.table("steps")["instruction"][step]), tile)

    def live_at_peak(self, tile: int) -> LiveSet:
        """What needs memory at a tile's fullest moment."""
        self.check_tile(tile)
        sql = "SELECT peak_instruction FROM tiles WHERE replica = 0 AND ipu = ? AND tile = ?"
        rows = self.execute(sql, (tile // self.tiles_per_ipu, tile))
        if not rows or type(rows[0][0]) is not int:
            raise self.damaged(f"does not say when tile {tile} is fullest")
        return self._live(rows[0][0], tile)

    def _live(self, instruction: int, tile: int | None) -> LiveSet:
        always = self.column("variable.always_live").astype(bool)
        is_live = always.copy()
        first, last = self.column("live.first"), self.column("live.last")
        is_live[self.column("live.variable")[(first <= instruction) & (last >= instruction)]] = True
        if tile is None:
            variable = np.flatnonzero(is_live)
            n_bytes = self.table("variables")["n_bytes"][variable]
        else:
            variable, n_bytes = self.tile_variables(tile)
            here = is_live[variable]
            variable, n_bytes = variable[here], n_bytes[here]
        order = np.argsort(-n_bytes, kind="stable")
        return LiveSet(variable[order], n_bytes[order], always[variable[order]])

    def tile_variables(self, tile: int) -> tuple[Ints, Ints]:
        """Ids and bytes of all variables on a tile."""
        variable, n_bytes = (self._of_tile(tile, what) for what in ("variable", "n_bytes"))
        if len(variable) and (variable.max() >= self.n_variables or variable.min() < 0):
            raise self.damaged(f"names variables on tile {tile} that do not exist")
        return variable, n_bytes

    def tile_addresses(self, tile: int) -> Ints | None:
        """The address of each variable of a tile; None in reports before schema 1.1."""
        return None if self.schema_version < (1, 1) else self._of_tile(tile, "address")

    def _of_tile(self, tile: int, what: str) -> Ints:
        """A packed column of `tile_variables`: one number for each variable on a tile."""
        self.check_tile(tile)
        sql = f"SELECT n_variables, {what}_dtype, {what} FROM tile_variables WHERE tile = ?"
        rows = self.execute(sql, (tile,))
        if not rows or type(rows[0][0]) is not int:
            raise self.damaged(f"does not say what is on tile {tile}")
        n, dtype, data = rows[0]
        return unpack(data, dtype, (n,), f"{what} of the variables of tile {tile}")

    def tile_bytes(self, variable: int) -> Ints:
        """int64[n_tiles]: a variable's bytes on each tile."""
        start = self.column("variable.tile_start")
        mine = slice(start[variable], start[variable + 1])
        found = np.zeros(self.n_tiles, np.int64)
        found[self.column("variable.tile")[mine]] = self.column("variable.tile_bytes")[mine]
        return found

    def variable_names(self, variables: Ints) -> list[str]:
        """Names of a few variables, without reading the whole table."""
        sql = "SELECT name FROM variables WHERE id = ?"
        return [str(row[0]) for v in variables.tolist() for row in self.execute(sql, (v,))]

    def lifetimes(self, variable: int) -> Ints:
        """int64[n, 2]: first and last instruction of each range a temporary is live in."""
        mine = self.column("live.variable") == variable
        return np.stack([self.column("live.first")[mine], self.column("live.last")[mine]], axis=1)

    # -- the tile program --------------------------------------------------------------------------

    @cached_property
    def kept_executable(self) -> "Executable":
        """The tile program, loaded once, for looking things up."""
        return self.executable()

    def executable(self) -> "Executable":
        """The tile program, for costing it again."""
        from tremula.compiler.executable.executable import Executable

        rows = self.execute("SELECT n_bytes, data FROM executable")
        if not rows:
            raise MissingProfileData(
                f"report {str(self.path)!r} does not hold its tile program.",
                hint="write the report with keeps_executable=True, or give the script instead",
            )
        n_bytes, data = rows[0]
        if type(n_bytes) is not int or n_bytes < 0:
            raise self.damaged(f"has a tile program of {n_bytes!r} bytes")
        content = inflate(data, n_bytes, "the tile program")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "executable")
            path.write_bytes(content)
            try:
                return Executable.load(str(path))
            except FileLoadError as error:
                why = error.what.replace(repr(str(path)), "its tile program")
                raise FileLoadError(
                    f"report {str(self.path)!r}: {why}",
                    hint="write the report again with this version",
                ) from error
