"""Trace files: events and numbers of one process in an SQLite file, committed as they come."""

import json
import os
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np

from tremula.base.errors import FileLoadError

APPLICATION = "tremula trace"
SCHEMA_VERSION = (1, 0)
# Events wait in a list until there are so many, or so much time has gone by since the last were
# written.
_MOST_WAITING, _LONGEST_WAIT_NS = 5_000, 1_000_000_000

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
    """A trace being written. A killed process loses what came in its last second at most."""

    def __init__(self, directory: Path):
        stamp = time.strftime("%a_%b_%d_%H-%M-%S_%Y_GMT", time.gmtime())
        self.path = directory / f"{stamp}_{os.getpid()}.pvti"
        for number in range(2, 1000):
            if not self.path.exists():
                break
            self.path = directory / f"{stamp}_{os.getpid()}-{number}.pvti"
        self._lock = threading.RLock()
        self._numbers: dict[tuple[str, ...], int] = {}
        self._threads: set[int] = set()
        self._events: list[tuple] = []
        self._samples: list[tuple] = []
        self._bins: list[tuple] = []
        self._written_ns = time.monotonic_ns()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                self.path, check_same_thread=False, isolation_level=None
            )
            for table, columns in TABLES.items():
                self._database.execute(f"CREATE TABLE {table} ({columns})")
        except (OSError, sqlite3.Error) as error:
            raise FileLoadError(
                f"cannot write a trace to {str(directory)!r}: {error}.",
                mend="give a folder you may write to",
            ) from error
        facts = {
            "application": APPLICATION,
            "schema_version": list(SCHEMA_VERSION),
            "pid": os.getpid(),
            "started_ns": time.time_ns(),
        }
        rows = [(k, json.dumps(v)) for k, v in facts.items()]
        self._database.executemany("INSERT INTO info VALUES (?, ?)", rows)

    def event(
        self, channel: str, label: str, start_ns: int, duration_ns: int, details: str
    ) -> None:
        thread = threading.get_ident()
        row = (os.getpid(), thread, channel, label, start_ns, duration_ns, details)
        with self._lock:
            if thread not in self._threads:
                self._name_thread(thread, threading.current_thread().name)
            self._events.append(row)
            self._write_if_due()

    def _name_thread(self, thread: int, name: str) -> None:
        self._threads.add(thread)
        row = (os.getpid(), thread, name)
        self._database.execute("INSERT OR REPLACE INTO threads VALUES (?, ?, ?)", row)

    def name_thread(self, name: str) -> None:
        with self._lock:
            self._name_thread(threading.get_ident(), name)

    def sample(self, graph: str, unit: str, series: str, time_ns: int, value: float) -> None:
        with self._lock:
            number = self._number(("series", graph, series), (graph, series, unit))
            self._samples.append((number, time_ns, value))
            self._write_if_due()

    def bins(
        self, name: str, unit: str, edges: list[float], time_ns: int, counts: np.ndarray
    ) -> None:
        with self._lock:
            number = self._number(("heatmaps", name), (name, unit, json.dumps(edges)))
            data = counts.astype("<u8").tobytes()
            self._bins.append((number, time_ns, data))
            self._write_if_due()

    def _number(self, key: tuple[str, ...], row: tuple) -> int:
        """The id of a row of the table key[0], added when it is new."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = sum(k[0] == key[0] for k in self._numbers)
            marks = ", ".join("?" * (len(row) + 1))
            self._database.execute(f"INSERT INTO {key[0]} VALUES ({marks})", (number, *row))
        return number

    def _write_if_due(self) -> None:
        n = len(self._events) + len(self._samples) + len(self._bins)
        if n >= _MOST_WAITING or time.monotonic_ns() - self._written_ns > _LONGEST_WAIT_NS:
            self.flush()

    def flush(self) -> None:
        """Write and commit what waits."""
        with self._lock:
            self._database.execute("BEGIN")
            rows = [
                (
                    pid,
                    tid,
                    self._number(("channels", c), (c,)),
                    self._number(("labels", x), (x,)),
                    *rest,
                )
                for pid, tid, c, x, *rest in self._events
            ]
            self._database.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._database.executemany("INSERT INTO samples VALUES (?, ?, ?)", self._samples)
            self._database.executemany("INSERT INTO heatmap_data VALUES (?, ?, ?)", self._bins)
            self._database.execute("COMMIT")
            self._events, self._samples, self._bins = [], [], []
            self._written_ns = time.monotonic_ns()

    def close(self) -> None:
        with self._lock:
            self.flush()
            self._database.close()
