"""What a report file holds: sizes, tables, long columns and matrices, read when asked for."""

import json
import os
import sqlite3
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tremula.base.errors import MissingProfileData, suggest
from tremula.vision.report.database import DatabaseKind, DatabaseReader
from tremula.vision.report.matrices import Matrix
from tremula.vision.report.packing import unpack
from tremula.vision.report.schema import (
    ADDED_COLUMNS,
    APPLICATION,
    COLUMN_TABLES,
    SCHEMA_VERSION,
    TABLES,
    report_path,
    reports_instead,
)

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
# Facts that every reader relies on.
_NEEDED = ("n_steps", "has_run")
_SIZES = ("n_ipus", "tiles_per_ipu", "n_tiles", "n_replicas", "n_bytes_per_tile", "clock_hz")


class ReportTables(DatabaseReader):
    """Nothing is read before it is asked for, and most things are kept then."""

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
                    hint=f"one SELECT, at most {_MAX_QUERY_S:g} s; tables: {', '.join(TABLES)}",
                ) from None
            finally:
                self._database.set_progress_handler(None, 0)
        return names, rows
