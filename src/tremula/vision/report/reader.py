"""Reads report files, lazily and read-only; everything that shows a report goes through here."""

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from tremula.base.columns import inflate, unpack
from tremula.base.errors import FileLoadError, MissingProfileData, suggest
from tremula.base.lazy import vision
from tremula.base.storage.strict_json import JsonObject
from tremula.compiler.report.phases import PHASES
from tremula.vision.report.database import DatabaseKind, DatabaseReader
from tremula.vision.report.matrices import Matrix
from tremula.vision.report.query import run_query
from tremula.vision.report.references import wrong_in_column, wrong_in_table
from tremula.vision.report.schema import (
    APPLICATION,
    COLUMN_TABLES,
    SCHEMA_VERSION,
    TABLES,
    pool_of_level,
    report_to_read,
    reports_instead,
)
from tremula.vision.report.windows import pooled, tile_rows

if TYPE_CHECKING:
    from tremula.compiler.executable.executable import Executable
    from tremula.vision.report.timeline.timeline import Timeline, TimelineEntries


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
# Facts that all code below relies on: of `info`, and of `target`.
NEEDED_FACTS = (
    "n_steps", "has_run", "n_entries", "n_executions", "is_folded", "estimated_cycles",
    "overview_pool", "stored_pool", "n_vertices", "n_edges", "n_variables", "n_compute_sets",
    "available_bytes",
)  # fmt: skip
_TIMELINE = ("runs", "events", "checkpoints")
_MOST_AT_ONCE = 1 << 25  # entries × chips
NEEDED_SIZES = (
    "n_ipus", "tiles_per_ipu", "n_tiles", "n_replicas", "n_bytes_per_tile",
    "available_bytes_per_tile", "n_workers", "clock_hz", "sync_cycles", "exchange_bytes_per_cycle",
    "flops_per_cycle_half", "flops_per_cycle_half_float", "flops_per_cycle_float",
    "flops_per_cycle_vector_half", "flops_per_cycle_vector_float",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PooledRows:
    """Pooled rows: row i covers entries or steps edges[i] … edges[i+1]-1."""

    edges: Ints  # int64[n + 1]
    cells: Ints  # int64[n, n_tiles]


@dataclass(frozen=True, slots=True)
class TilePhases:
    """Cycles of each tile in the five phases and idle: int64[n, n_tiles] each."""

    edges: Ints
    compute: Ints
    exchange: Ints
    links: Ints
    host: Ints
    sync: Ints
    idle: Ints


@dataclass(frozen=True, slots=True)
class LiveSet:
    """Variables that need memory somewhere, largest first."""

    variable: Ints
    n_bytes: Ints
    always_live: Ints  # bool


def open_report(path: str | os.PathLike[str]) -> "ReportReader":
    """A reader of a report file, of the `profile.pop` in a folder, or of the only one below it."""
    return ReportReader(path)


class ReportReader(DatabaseReader):
    """One report: its tables, cycles, memory and tile program.

    Nothing is read before it is requested; most things are then cached.
    """

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(report_to_read(path), _REPORT)
        self._tables: dict[str, Table] = {}
        self._columns: dict[str, Ints] = {}
        self._matrices: dict[str, Matrix] = {}
        self._loading = Lock()
        try:
            self.target: JsonObject = self.facts("target")
            self._check_sizes()
        except BaseException:
            self.close()
            raise

    def _check_sizes(self) -> None:
        for facts, keys in ((self.info, NEEDED_FACTS), (self.target, NEEDED_SIZES)):
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
        return vision("analysis.notebook").report_html(self)

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
        result = {}
        for (_, column, kind, *_), values in zip(declared, listed, strict=False):
            result[column] = self._as_column(name, column, kind, values)
        self._require_sound(wrong_in_table(name, result, self._sizes))
        return result

    def _require_sound(self, wrong: str) -> None:
        if wrong:
            raise self.damaged(wrong)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """How many there are of what numbers refer to."""
        counted = ("programs", "compute_sets", "vertex_types", "vertices", "variables",
                   "debug_contexts")  # fmt: skip
        return {
            "steps": self.n_steps,
            "tiles": self.n_tiles,
            "ipus": self.n_ipus,
            "steps_by_ipu": self.n_steps * self.n_ipus,
            **{name: self.execute(f"SELECT count(*) FROM {name}")[0][0] for name in counted},
        }

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
                column = unpack(data, dtype, self._shape(shape), f"column {name!r}")
                self._require_sound(wrong_in_column(name, column, self._sizes))
                self._columns[name] = column
            return self._columns[name]

    def has_column(self, name: str) -> bool:
        """Whether the file has a long column: files of earlier versions lack some."""
        with self.lock:
            return bool(self.execute("SELECT 1 FROM columns WHERE name = ?", (name,)))

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
        with self.lock:
            return run_query(self._database, sql, parameters)

    # -- time --------------------------------------------------------------------------------------

    @property
    def n_entries(self) -> int:
        return int(self.info["n_entries"])

    @cached_property
    def timeline(self) -> "Timeline":
        """What ran when. Walking it is compiled code, which is loaded here."""
        from tremula.vision.report.timeline.script import ROUTE_COLUMNS, Routes
        from tremula.vision.report.timeline.timeline import Timeline

        sizes = self.info["timeline"]
        columns = {name: self.column(f"timeline.{name}") for name in ROUTE_COLUMNS}
        nothing = np.zeros(0, np.int64)  # places are of no concern to walks
        routes = Routes(
            columns, sizes["n_slots"], sizes["n_stages"], sizes["n_places"], nothing, nothing
        )
        joins, takes_part = self.by_ipu("joins")[:, 0], self.takes_part
        is_counted = self.table("steps")["is_counted"].astype(bool) & sizes["counts_steps"]
        script = routes.script(self.phases_of_steps, joins, takes_part, is_counted)
        stored = (np.ascontiguousarray(self.column(f"timeline.{n}")) for n in _TIMELINE)
        runs, events, checkpoints = stored
        return Timeline(
            script, runs, events, bool(self.info["is_folded"]), checkpoints, self.n_entries
        )

    def entries(self, first: int, last: int) -> "TimelineEntries":
        """Entries first … last-1 of the timeline: what ran when on which chip."""
        return self.timeline.entries(first, last)

    @cached_property
    def trace(self) -> "TimelineEntries":
        """All entries at once; of a long run, ask for `entries` instead."""
        if self.n_entries * self.n_ipus > _MOST_AT_ONCE:
            raise MissingProfileData(
                f"report {str(self.path)!r} has {self.n_entries:,} entries on {self.n_ipus} chips, "
                "too many to hold at once.",
                hint="ask for reader.entries(first, last)",
            )
        return self.entries(0, self.n_entries)

    @property
    def overview_pool(self) -> int:
        """How many entries a bucket of the overview holds."""
        return int(self.info["overview_pool"])

    @property
    def stored_pool(self) -> int:
        """How many entries a row of the matrices `trace_compute` and `trace_exchange` holds."""
        return int(self.info["stored_pool"])

    def by_ipu(self, name: str) -> Ints:
        """[n_steps, n_ipus]: a column of `steps_by_ipu`; 0 cycles where a chip takes no part."""
        return self.table("steps_by_ipu")[name].reshape(self.n_steps, self.n_ipus)

    @cached_property
    def takes_part(self) -> Ints:
        """bool[n_steps, n_ipus]: which chips a step takes time of."""
        return (self.by_ipu("is_active") | self.by_ipu("joins")).astype(bool)

    @property
    def phases_of_steps(self) -> Ints:
        """int64[n_steps, n_ipus, 5]: one execution of each step."""
        return self._phases_of_steps

    @cached_property
    def _phases_of_steps(self) -> Ints:
        return np.stack([self.by_ipu(name) for name in PHASES], axis=2)

    @cached_property
    def busy_of_steps(self) -> Ints:
        """int64[n_steps, n_ipus, 5]: everything that ran, on the critical path or not."""
        busy = self.phases_of_steps * self.table("steps")["executed"][:, None, None]
        busy[:, :, 0] = self.by_ipu("total_compute")  # cycles may have depended on data
        return busy

    def tile_name(self, tile: int) -> str:
        """A tile as every view calls it: by its number, of several chips with the chip's."""
        chip, number = divmod(tile, self.tiles_per_ipu)
        return f"chip {chip}, tile {number:,}" if self.n_ipus > 1 else f"tile {tile:,}"

    def step_cycles(self, step: int) -> TilePhases:
        """One execution of a step on every tile: Phases of one row."""
        self.check_step(step)
        compute, exchange = (self.matrix(n).rows(step, step + 1) for n in ("compute", "exchange"))
        chips = self.phases_of_steps[step : step + 1]
        return self._phases(np.array([step, step + 1]), compute, exchange, chips, chips.sum(axis=2))

    def _phases(
        self, edges: Ints, compute: Ints, exchange: Ints, chips: Ints, total: Ints
    ) -> TilePhases:
        """Tiles follow their chip in links, host and sync; idle is the rest of the chip's time."""
        each = [np.repeat(chips[:, :, i], self.tiles_per_ipu, axis=1) for i in range(2, 5)]
        idle = np.repeat(total, self.tiles_per_ipu, axis=1) - compute - exchange - sum(each)
        links, host, sync = each
        return TilePhases(edges, compute, exchange, links, host, sync, idle)

    def window(self, name: str, first: int, last: int, max_rows: int) -> PooledRows:
        """At most `max_rows` rows that pool first … last-1.

        Of entries for `compute` and `exchange`, of steps for `live`; the ends may lie a little
        further out, where stored rows begin and end.
        """
        if name not in ("compute", "exchange", "live"):
            raise MissingProfileData(
                f"there is no window of {name!r}.", hint="use compute, exchange or live"
            )
        n = self.n_steps if name == "live" else self.n_entries
        first, last = max(0, first), min(n, last)
        if last <= first or max_rows < 1:
            return PooledRows(np.array([first]), np.zeros((0, self.n_tiles), np.int64))
        if name == "live":
            return self._pooled_live(first, last, max_rows)
        edges = self._edges(first, last, max_rows)
        return PooledRows(edges, tile_rows(self, name, pooled(self, edges)))

    def _edges(self, first: int, last: int, max_rows: int) -> Ints:
        """Of rows of equally many entries, a power of two, that cover a range."""
        per_row = 1
        while -(-last // per_row) - first // per_row > max_rows:
            per_row *= 2
        begin = first // per_row * per_row
        return np.append(
            np.arange(begin, last, per_row), min(-(-last // per_row) * per_row, self.n_entries)
        )

    def _pooled_live(self, first: int, last: int, max_rows: int) -> PooledRows:
        """From the coarsest stored level that is fine enough, pooled further as needed."""
        live = self.matrix("live")
        per_row = -(-(last - first) // max_rows)
        level = max((k for k in range(len(live.levels)) if pool_of_level(k) <= per_row), default=0)
        unit = pool_of_level(level)
        if level:  # rows start and end where the level's rows do
            per_row = -(-(last - first + 2 * unit) // (max_rows * unit)) * unit
        begin = first // unit
        end = -(-last // unit)
        rows = live.rows(begin, end, level)
        starts = np.arange(0, len(rows), per_row // unit)
        cells = np.maximum.reduceat(rows, starts, axis=0)
        return PooledRows(np.append((begin + starts) * unit, min(end * unit, live.n_rows)), cells)

    def phases(self, first: int, last: int, max_rows: int) -> TilePhases:
        """Entries first … last-1 in at most `max_rows` rows, split six ways.

        A row lasts from the end of the one before on each chip, so idle includes waiting.
        """
        first, last = max(0, first), min(self.n_entries, last)
        if last <= first or max_rows < 1:
            nothing = np.zeros((0, self.n_tiles), np.int64)
            return TilePhases(np.array([first]), *(nothing,) * 6)
        rows = pooled(self, self._edges(first, last, max_rows))
        compute, exchange = (tile_rows(self, name, rows) for name in ("compute", "exchange"))
        before = np.concatenate([rows.begin[:1], rows.end[:-1]])
        return self._phases(rows.edges, compute, exchange, rows.phases, rows.end - before)

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

    def tile_addresses(self, tile: int) -> Ints:
        """The address of each variable of a tile."""
        return self._of_tile(tile, "address")

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
        result = np.zeros(self.n_tiles, np.int64)
        result[self.column("variable.tile")[mine]] = self.column("variable.tile_bytes")[mine]
        return result

    def variable_names(self, variables: Ints) -> list[str]:
        """Names of a few variables, without reading the whole table."""
        sql = "SELECT name FROM variables WHERE id = ?"
        return [str(row[0]) for v in variables.tolist() for row in self.execute(sql, (v,))]

    def lifetimes(self, variable: int) -> Ints:
        """int64[n, 2]: first and last instruction of each range a temporary is live in."""
        mine = self.column("live.variable") == variable
        return np.stack([self.column("live.first")[mine], self.column("live.last")[mine]], axis=1)

    # -- the tile program --------------------------------------------------------------------------

    @property
    def kept_executable(self) -> "Executable":
        """The tile program, loaded once: that takes seconds, so a second thread waits for it."""
        with self._loading:
            return self._executable

    @cached_property
    def _executable(self) -> "Executable":
        return self.executable()

    def executable(self) -> "Executable":
        """The tile program, loaded again."""
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
