"""Trace files: events and numbers of one process in an SQLite file, committed as they come."""

import itertools
import json
import os
import sqlite3
import threading
import time
from multiprocessing import current_process
from pathlib import Path

import numpy as np

from tremula.base.errors import FileLoadError

APPLICATION = "tremula trace"
SCHEMA_VERSION = (1, 0)

TABLES = {
    "info": "key TEXT PRIMARY KEY, value TEXT",
    "channels": "id INTEGER PRIMARY KEY, name TEXT UNIQUE",
    "labels": "id INTEGER PRIMARY KEY, name TEXT UNIQUE",
    "threads": "pid INTEGER, tid INTEGER, name TEXT, PRIMARY KEY (pid, tid)",
    # A duration of -1 is an instant.
    "events": """pid INTEGER, tid INTEGER, channel INTEGER, label INTEGER, start_ns INTEGER,
        duration_ns INTEGER, details TEXT""",
    "series": "id INTEGER PRIMARY KEY, graph TEXT, name TEXT, unit TEXT, UNIQUE (graph, name)",
    "samples": "series INTEGER, time_ns INTEGER, value REAL",
    "heatmaps": "id INTEGER PRIMARY KEY, name TEXT UNIQUE, unit TEXT, edges TEXT",
    "heatmap_data": "heatmap INTEGER, time_ns INTEGER, bin_quantities BLOB",
}


class TraceFile:
    """A trace being written. Rows wait for `flush`; flushed rows survive a killed process."""

    def __init__(self, directory: Path):
        self.path = _free_path(directory)
        self._lock = threading.Lock()  # of the waiting rows; only ever held briefly
        self._writing = threading.Lock()  # of the database
        self._numbers: dict[str, dict[tuple[str, ...], int]] = {}
        self._threads: set[int] = set()
        self._waiting: dict[str, list[tuple]] = {}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                self.path, check_same_thread=False, isolation_level=None
            )
            # No waiting for the disk: only a power failure can lose flushed rows.
            self._database.execute("PRAGMA synchronous = OFF")
            for table, columns in TABLES.items():
                self._database.execute(f"CREATE TABLE {table} ({columns})")
        except (OSError, sqlite3.Error) as error:
            raise FileLoadError(
                f"cannot write a trace to {str(directory)!r}: {error}.",
                hint="give a folder you may write to",
            ) from error
        facts = {
            "application": APPLICATION,
            "schema_version": list(SCHEMA_VERSION),
            "pid": os.getpid(),
            "started_ns": time.time_ns(),
        }
        with self._lock:
            for key, value in facts.items():
                self._add("info", (key, json.dumps(value)))

    def event(
        self, channel: str, label: str, start_ns: int, duration_ns: int, details: str
    ) -> None:
        thread = threading.get_ident()
        with self._lock:
            if thread not in self._threads:
                self._name_thread(thread, _thread_name())
            numbers = self._number("channels", (channel,)), self._number("labels", (label,))
            self._add("events", (os.getpid(), thread, *numbers, start_ns, duration_ns, details))

    def _name_thread(self, thread: int, name: str) -> None:
        self._threads.add(thread)
        self._add("threads", (os.getpid(), thread, name))

    def name_thread(self, name: str) -> None:
        with self._lock:
            self._name_thread(threading.get_ident(), name)

    def sample(self, graph: str, unit: str, series: str, time_ns: int, value: float) -> None:
        with self._lock:
            number = self._number("series", (graph, series), unit)
            self._add("samples", (number, time_ns, value))

    def bins(
        self, name: str, unit: str, edges: list[float], time_ns: int, counts: np.ndarray
    ) -> None:
        with self._lock:
            number = self._number("heatmaps", (name,), unit, json.dumps(edges))
            self._add("heatmap_data", (number, time_ns, counts.astype("<u8").tobytes()))

    def _number(self, table: str, key: tuple[str, ...], *rest: str) -> int:
        """The id of a row of a table of names, added when it is new."""
        known = self._numbers.setdefault(table, {})
        number = known.get(key)
        if number is None:
            number = known[key] = len(known)
            self._add(table, (number, *key, *rest))
        return number

    def _add(self, table: str, row: tuple) -> None:
        self._waiting.setdefault(table, []).append(row)

    def flush(self) -> None:
        """Write and commit waiting rows; other threads can continue recording meanwhile."""
        with self._writing:
            with self._lock:
                waiting, self._waiting = self._waiting, {}
            if not waiting:
                return
            self._database.execute("BEGIN")
            for table, rows in waiting.items():
                marks = ", ".join("?" * len(rows[0]))
                self._database.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)
            self._database.execute("COMMIT")

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._database.close()


def _thread_name() -> str:
    """The thread's name; the main thread of a child process has the process's name."""
    thread, process = threading.current_thread(), current_process()
    is_first = thread is threading.main_thread() and process.name != "MainProcess"
    return process.name if is_first else thread.name


def _free_path(directory: Path) -> Path:
    """An unused name that tells the time and the process, as libpvti's names do."""
    stamp = time.strftime("%a_%b_%d_%H-%M-%S_%Y_GMT", time.gmtime())
    for number in itertools.count(1):
        suffix = "" if number == 1 else f"-{number}"
        path = directory / f"{stamp}_{os.getpid()}{suffix}.pvti"
        if not path.exists():
            return path
    raise AssertionError("some number is always free")
