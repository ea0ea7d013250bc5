"""Reads report files, lazily and read-only; everything else asks this."""

import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tremula.base.errors import FileLoadError, MissingProfileData, suggest
from tremula.vision.matrices import Matrix
from tremula.vision.packing import MAX_UNPACKED_BYTES, inflate, unpack
from tremula.vision.schema import (
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
    from tremula.compiler.executable import Executable

Ints = np.ndarray
Table = dict[str, Any]  # a column is an int64 or float64 array, or a list of text

_MAGIC = b"SQLite format 3\x00"
_MAX_QUERY_ROWS, _MAX_QUERY_S = 10_000, 2.0
_MAX_FACT_CHARACTERS = 16 << 20
# Facts that every reader relies on.
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


class ReportReader:
    """One report. Nothing is read before it is asked for, and most things are kept then."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = report_path(path) if Path(path).is_dir() else Path(path)
        self.lock = threading.RLock()
        self._tables: dict[str, Table] = {}
        self._columns: dict[str, Ints] = {}
        self._matrices: dict[str, Matrix] = {}
        self._database = _opened(self.path)
        try:
            self.info: dict[str, Any] = self._facts("info")
            self._check_version()
            self.target: dict[str, Any] = self._facts("target")
            self._check_sizes()
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self.lock:
            self._database.close()

    def __repr__(self) -> str:
        ran = f"{self.info['total_cycles']:,} cycles" if self.has_run else "not run"
        chip = self.target.get("chip", "?")
        return f"ReportReader({self.path.name}: {chip}, {self.n_steps:,} steps, {ran})"

    def _repr_html_(self) -> str:
        from tremula.vision.notebook import report_html

        return report_html(self)

    # -- checks ------------------------------------------------------------------------------------

    def _check_version(self) -> None:
        if self.info.get("application") != APPLICATION:
            raise self.foreign("is a database, but no report of Tremula's")
        version = self.info.get("schema_version")
        if not (isinstance(version, list) and len(version) == 2 and _are_whole(version)):
            raise self.damaged(f"has schema version {version!r}")
        if version[0] > SCHEMA_VERSION[0]:
            raise FileLoadError(
                f"report {str(self.path)!r} has schema version {version[0]}.{version[1]}; this "
                f"Tremula reads up to {SCHEMA_VERSION[0]}.x.",
                mend="update Tremula, or write the report again with this version",
            )

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

    def damaged(self, why: str) -> FileLoadError:
        return FileLoadError(
            f"report {str(self.path)!r} {why}.", mend="write the report again; this one is damaged"
        )

    def foreign(self, why: str) -> FileLoadError:
        return FileLoadError(
            f"{str(self.path)!r} {why}.", mend="give a profile.pop that Tremula wrote"
        )

    # -- sizes -------------------------------------------------------------------------------------

    @property
    def schema_version(self) -> tuple[int, int]:
        return tuple(self.info["schema_version"])

    @property
    def has_run(self) -> bool:
        return bool(self.info["has_run"])

    @property
    def n_steps(self) -> int:
        return int(self.info["n_steps"])

    @property
    def n_entries(self) -> int:
        return len(self.trace.step)

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

    # -- tables, columns, matrices -----------------------------------------------------------------

    @cached_property
    def options(self) -> dict[str, str]:
        return dict(self.execute("SELECT name, value FROM options"))

    @cached_property
    def versions(self) -> dict[str, str]:
        return dict(self.execute("SELECT name, value FROM versions"))

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple]:
        """All rows of a statement of ours."""
        try:
            with self.lock:
                return self._database.execute(sql, parameters).fetchall()
        except sqlite3.ProgrammingError:
            raise FileLoadError(
                f"report {str(self.path)!r} is closed.", mend="open it again"
            ) from None
        except sqlite3.DatabaseError as error:
            raise self.damaged(f"cannot be read ({error})") from error

    def _facts(self, table: str) -> dict[str, Any]:
        rows = self.execute(f"SELECT key, value FROM {table}")
        try:
            return {str(k): json.loads(v[:_MAX_FACT_CHARACTERS]) for k, v in rows}
        except (ValueError, TypeError, RecursionError) as error:
            raise self.damaged(f"has no readable {table} ({error})") from None

    def table(self, name: str) -> Table:
        """All columns of a table, in the order of its rows; arrays are read-only."""
        if name not in COLUMN_TABLES:
            raise MissingProfileData(
                f"a report has no table {name!r}.", mend=suggest(name, COLUMN_TABLES)
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
            raise self.damaged(f"has values of another type in {table}.{column}") from None
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
                self._matrices[name] = Matrix.of(self, name)
            return self._matrices[name]

    def query(self, sql: str, parameters: Sequence[object] = ()) -> tuple[list[str], list[tuple]]:
        """Names and rows of somebody's read-only SQL: at most 10,000 rows and 2 seconds."""
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
                    mend=f"one SELECT, at most {_MAX_QUERY_S:g} s; tables: {', '.join(TABLES)}",
                ) from None
            finally:
                self._database.set_progress_handler(None, 0)
        return names, rows

    # -- cycles ------------------------------------------------------------------------------------

    @cached_property
    def trace(self) -> Trace:
        return Trace(*(self.column(f"trace.{name}") for name in ("step", "times", "start", "end")))

    def by_ipu(self, name: str) -> Ints:
        """[n_steps, n_ipus]: a column of `steps_by_ipu`."""
        return self.table("steps_by_ipu")[name].reshape(self.n_steps, self.n_ipus)

    def step_cycles(self, step: int) -> Phases:
        """One execution of a step on every tile: Phases of one row."""
        self._check_step(step)
        edges = np.array([step, step + 1])
        compute, exchange = (self.matrix(n).rows(step, step + 1) for n in ("compute", "exchange"))
        takes_part = self.by_ipu("is_active") | self.by_ipu("joins")
        sync = (self.by_ipu("sync") * takes_part)[step : step + 1]
        total = (self.by_ipu("cycles") * takes_part)[step : step + 1]
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
                f"there is no window of {name!r}.", mend="use compute, exchange or live"
            )
        n = self.n_steps if name == "live" else self.n_entries
        first, last = max(0, first), min(n, last)
        if last <= first or max_rows < 1:
            return Window(np.array([first]), np.zeros((0, self.n_tiles), np.int64))
        pooled = self.matrix(name if name == "live" else f"trace_{name}")
        return self._pooled(name, pooled, first, last, max_rows)

    def _pooled(self, name: str, pooled: Matrix, first: int, last: int, max_rows: int) -> Window:
        """From the coarsest stored level that is fine enough, pooled further as needed."""
        per_row = -(-(last - first) // max_rows)
        level = max(
            (k for k in range(len(pooled.levels)) if pool_of_level(k) <= per_row), default=0
        )
        unit = pool_of_level(level)
        if level:  # rows start and end where the level's rows do
            per_row = -(-(last - first + 2 * unit) // (max_rows * unit)) * unit
        begin = first // unit
        end = -(-last // unit)
        rows = self._rows(name, pooled, begin, end, level)
        group = per_row // unit
        reduce = np.maximum if name == "live" else np.add
        starts = np.arange(0, len(rows), group)
        cells = reduce.reduceat(rows, starts, axis=0)
        edges = np.append((begin + starts) * unit, min(end * unit, pooled.n_rows))
        return Window(edges, cells)

    def _rows(self, name: str, pooled: Matrix, begin: int, end: int, level: int) -> Ints:
        if level or name == "live":
            return pooled.rows(begin, end, level)
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
        trace, takes_part = self.trace, self.by_ipu("is_active") | self.by_ipu("joins")
        step, times = trace.step[lasting], trace.times[lasting, None]
        at = starts - starts[0]
        sync = np.add.reduceat((self.by_ipu("sync") * takes_part)[step] * times, at, axis=0)
        total = np.add.reduceat((self.by_ipu("cycles") * takes_part)[step] * times, at, axis=0)
        return self._phases(compute.edges, compute.cells, exchange.cells, sync, total)

    # -- memory ------------------------------------------------------------------------------------

    def live_at(self, step: int, tile: int | None = None) -> LiveSet:
        """What needs memory at a step, on a tile or on all of them."""
        self._check_step(step)
        return self._live(int(self.table("steps")["instruction"][step]), tile)

    def _check_step(self, step: int) -> None:
        if not 0 <= step < self.n_steps:
            raise MissingProfileData(
                f"step {step} does not exist: the report has {self.n_steps}.",
                mend=f"use 0 to {self.n_steps - 1}",
            )

    def live_at_peak(self, tile: int) -> LiveSet:
        """What needs memory at a tile's fullest moment."""
        self._check_tile(tile)
        sql = "SELECT peak_instruction FROM tiles WHERE replica = 0 AND ipu = ? AND tile = ?"
        rows = self.execute(sql, (tile // self.tiles_per_ipu, tile))
        if not rows or type(rows[0][0]) is not int:
            raise self.damaged(f"does not say when tile {tile} is fullest")
        return self._live(rows[0][0], tile)

    def _check_tile(self, tile: int) -> None:
        if not 0 <= tile < self.n_tiles:
            raise MissingProfileData(
                f"tile {tile} does not exist: the report has {self.n_tiles}.",
                mend=f"use 0 to {self.n_tiles - 1}",
            )

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
        self._check_tile(tile)
        sql = "SELECT n_variables, variable_dtype, variable, n_bytes_dtype, n_bytes "
        rows = self.execute(f"{sql} FROM tile_variables WHERE tile = ?", (tile,))
        if not rows or type(rows[0][0]) is not int:
            raise self.damaged(f"does not say what is on tile {tile}")
        n, *packed = rows[0]
        what = f"the list of variables of tile {tile}"
        variable, n_bytes = (
            unpack(data, dtype, (n,), what) for dtype, data in (packed[:2], packed[2:])
        )
        if n and (variable.max() >= self.n_variables or variable.min() < 0):
            raise self.damaged(f"names variables on tile {tile} that do not exist")
        return variable, n_bytes

    def tile_addresses(self, tile: int) -> Ints | None:
        """Where on the tile each of its variables lies; None in reports before schema 1.1."""
        if self.schema_version < (1, 1):
            return None
        self._check_tile(tile)
        sql = "SELECT n_variables, address_dtype, address FROM tile_variables WHERE tile = ?"
        rows = self.execute(sql, (tile,))
        if not rows or type(rows[0][0]) is not int:
            raise self.damaged(f"does not say what is on tile {tile}")
        n, dtype, data = rows[0]
        return unpack(data, dtype, (n,), f"the list of addresses of tile {tile}")

    def tile_bytes(self, variable: int) -> Ints:
        """int64[n_tiles]: a variable's bytes on each tile."""
        start = self.column("variable.tile_start")
        mine = slice(start[variable], start[variable + 1])
        found = np.zeros(self.n_tiles, np.int64)
        found[self.column("variable.tile")[mine]] = self.column("variable.tile_bytes")[mine]
        return found

    def variable_names(self, variables: Ints) -> list[str]:
        """Names of a few variables, without reading those of all."""
        sql = "SELECT name FROM variables WHERE id = ?"
        return [str(row[0]) for v in variables.tolist() for row in self.execute(sql, (v,))]

    def lifetimes(self, variable: int) -> Ints:
        """int64[n, 2]: first and last instruction of each stretch a temporary variable lives."""
        mine = self.column("live.variable") == variable
        return np.stack([self.column("live.first")[mine], self.column("live.last")[mine]], axis=1)

    # -- the program itself ------------------------------------------------------------------------

    def executable(self) -> "Executable":
        """The tile program, for costing it again."""
        from tremula.compiler.executable import Executable

        rows = self.execute("SELECT n_bytes, data FROM executable")
        if not rows:
            raise MissingProfileData(
                f"report {str(self.path)!r} does not hold its tile program.",
                mend="write the report with keeps_executable=True, or give the script instead",
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
                    mend="write the report again with this version",
                ) from error


def _are_whole(values: list) -> bool:
    return all(type(value) is int for value in values)


def _opened(path: Path) -> sqlite3.Connection:
    """A read-only connection, after a look at the file."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise FileLoadError(
            f"cannot read the report {str(path)!r}: {error.strerror or error}.",
            mend=reports_instead(path),
        ) from error
    if head != _MAGIC:
        what = "is empty" if not head else "is no report: it does not begin as one"
        raise FileLoadError(f"{str(path)!r} {what}.", mend="give a profile.pop that Tremula wrote")
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    database = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
    # A stranger's file may hold views and triggers: nothing of it is trusted, nothing is attached.
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA query_only = ON")
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_UNPACKED_BYTES)
    try:
        found = {
            row[0]
            for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
    except sqlite3.DatabaseError as error:
        database.close()
        raise FileLoadError(
            f"report {str(path)!r} is truncated or damaged ({error}).", mend="write it again"
        ) from error
    # Views of these names could compute for ever, so only real tables are taken.
    if not set(TABLES) <= found:
        database.close()
        raise FileLoadError(
            f"{str(path)!r} is a database, but no report of Tremula's.",
            mend="give a profile.pop that Tremula wrote",
        )
    return database
