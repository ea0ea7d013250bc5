"""The controller's state: one SQLite file, changed in transactions alone.

Tables say what must never happen: a chip in two partitions, or held by two programs, breaks a
primary key. A controller that is killed leaves either all of a change behind, or nothing.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tremula.base.errors import FileLoadError

VERSION = 1
_SCHEMA = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE clusters (
    name TEXT PRIMARY KEY, system TEXT NOT NULL, n_ipus INTEGER NOT NULL,
    n_ipus_per_machine INTEGER NOT NULL, topology TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE agents (
    name TEXT PRIMARY KEY, cluster TEXT REFERENCES clusters ON DELETE SET NULL, place INTEGER,
    host TEXT NOT NULL, serial TEXT NOT NULL UNIQUE, UNIQUE (cluster, place)
) WITHOUT ROWID;
CREATE TABLE users (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, key_hash TEXT NOT NULL UNIQUE,
    max_ipus INTEGER, max_partitions INTEGER
) WITHOUT ROWID;
CREATE TABLE allocations (
    name TEXT PRIMARY KEY, cluster TEXT NOT NULL REFERENCES clusters
) WITHOUT ROWID;
CREATE TABLE allocation_agents (
    agent TEXT PRIMARY KEY REFERENCES agents,
    allocation TEXT NOT NULL REFERENCES allocations ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE allocation_users (
    allocation TEXT NOT NULL REFERENCES allocations ON DELETE CASCADE,
    user TEXT NOT NULL REFERENCES users ON DELETE CASCADE, PRIMARY KEY (allocation, user)
) WITHOUT ROWID;
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    cluster TEXT NOT NULL REFERENCES clusters, allocation TEXT NOT NULL REFERENCES allocations,
    owner TEXT NOT NULL REFERENCES users, first INTEGER NOT NULL, size INTEGER NOT NULL,
    n_gcds INTEGER NOT NULL, is_reconfigurable INTEGER NOT NULL, sync_type TEXT NOT NULL,
    topology TEXT NOT NULL, routing TEXT NOT NULL,
    state TEXT NOT NULL, why TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL
);
CREATE INDEX partitions_of_owner ON partitions (owner);
CREATE TABLE partition_ipus (
    cluster TEXT NOT NULL, ipu INTEGER NOT NULL,
    partition INTEGER NOT NULL REFERENCES partitions ON DELETE CASCADE,
    PRIMARY KEY (cluster, ipu)
) WITHOUT ROWID;
CREATE INDEX ipus_of_partition ON partition_ipus (partition);
CREATE TABLE leases (
    id TEXT PRIMARY KEY, partition INTEGER NOT NULL REFERENCES partitions ON DELETE CASCADE,
    gcd INTEGER NOT NULL, user TEXT NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL,
    command TEXT NOT NULL, started_at REAL NOT NULL, ends_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX leases_of_partition ON leases (partition);
CREATE TABLE lease_ipus (
    cluster TEXT NOT NULL, ipu INTEGER NOT NULL,
    lease TEXT NOT NULL REFERENCES leases ON DELETE CASCADE, PRIMARY KEY (cluster, ipu)
) WITHOUT ROWID;
CREATE INDEX ipus_of_lease ON lease_ipus (lease);
CREATE TABLE faults (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,
    cluster TEXT NOT NULL REFERENCES clusters ON DELETE CASCADE,
    a INTEGER NOT NULL, b INTEGER NOT NULL, what TEXT NOT NULL, made_at REAL NOT NULL,
    UNIQUE (kind, cluster, a, b)
);
CREATE TABLE lease_faults (
    lease TEXT NOT NULL REFERENCES leases ON DELETE CASCADE, kind TEXT NOT NULL, what TEXT NOT NULL
);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, user TEXT NOT NULL,
    action TEXT NOT NULL, subject TEXT NOT NULL, outcome TEXT NOT NULL
);
"""
Row = sqlite3.Row
Value = str | int | float | None


class StateStore:
    """A connection to the state. `change` is a transaction, which one thread has at a time."""

    def __init__(self, path: Path | str):
        self.path = path
        if path != ":memory:":
            # Only its owner may read it: it holds the controller's secret.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=30
            )
            self._prepare()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise FileLoadError(
                f"{str(path)!r} holds no state of a controller: {error}.",
                hint="give another folder with --state",
            ) from None

    def _prepare(self) -> None:
        connection = self._connection
        connection.row_factory = sqlite3.Row
        # NORMAL: a killed process loses nothing; a power cut may lose the last changes, whole ones.
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")
        wrong = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if wrong != "ok":
            raise sqlite3.DatabaseError(wrong)
        result = connection.execute("PRAGMA user_version").fetchone()[0]
        if result == 0:
            script = f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={VERSION}; COMMIT;"
            connection.executescript(script)
        elif result != VERSION:
            raise FileLoadError(
                f"{str(self.path)!r} is the state of another version ({result}, not {VERSION}).",
                hint="use the Tremula that wrote it, or another folder with --state",
            )

    @contextmanager
    def change(self) -> Iterator[None]:
        """All statements of the block, or none of them; a block inside a block is part of it."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def rows(self, sql: str, *values: Value) -> list[Row]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def row(self, sql: str, *values: Value) -> Row | None:
        with self._lock:
            return self._connection.execute(sql, values).fetchone()

    def value(self, sql: str, *values: Value) -> Any:  # noqa: ANN401 - whatever the column holds
        result = self.row(sql, *values)
        return None if result is None else result[0]

    def run(self, sql: str, *values: Value) -> int:
        """Run a statement inside `change`; returns how many rows it touched."""
        assert self._connection.in_transaction, "state changes in transactions alone"
        return self._connection.execute(sql, values).rowcount

    def add(self, sql: str, *values: Value) -> int:
        """Insert a row inside `change`; returns its number."""
        assert self._connection.in_transaction, "state changes in transactions alone"
        return self._connection.execute(sql, values).lastrowid or 0

    def run_many(self, sql: str, rows: list[tuple]) -> None:
        assert self._connection.in_transaction, "state changes in transactions alone"
        self._connection.executemany(sql, rows)

    def close(self) -> None:
        with self._lock:
            self._connection.close()
