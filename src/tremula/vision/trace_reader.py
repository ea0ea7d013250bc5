"""Reads trace files; `openTrace` has pva's names for processes, threads and events."""

import json
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from tremula.base.errors import FileLoadError, MissingProfileData
from tremula.vision.pva_names import LazyList
from tremula.vision.trace_file import APPLICATION, SCHEMA_VERSION, TABLES

Ints = np.ndarray


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Events sorted by process, thread and start; a longer event comes before those inside it."""

    pid: Ints
    tid: Ints
    channel: Ints  # rows of `channels`
    label: Ints
    start_ns: Ints
    duration_ns: Ints  # -1: an instant
    depth: Ints  # how many events of its thread enclose it
    parent: Ints  # the innermost of them, or -1


class TraceReader:
    """One trace."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._database = _opened(self.path)
        rows = self._all("SELECT key, value FROM info")
        try:
            self.info = {k: json.loads(v) for k, v in rows}
        except (ValueError, TypeError) as error:
            raise self._damaged(str(error)) from None
        if self.info.get("application") != APPLICATION:
            raise FileLoadError(
                f"{str(path)!r} is a database, but no trace.",
                mend="give a .pvti that Tremula wrote",
            )
        version = self.info.get("schema_version")
        if isinstance(version, list) and version and version[0] > SCHEMA_VERSION[0]:
            raise FileLoadError(
                f"trace {str(path)!r} has schema version {version[0]}; this Tremula reads up to "
                f"{SCHEMA_VERSION[0]}.x.",
                mend="update Tremula",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def _damaged(self, why: str) -> FileLoadError:
        return FileLoadError(
            f"trace {str(self.path)!r} is truncated or damaged ({why}).", mend="record it again"
        )

    def _all(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple]:
        try:
            return self._database.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    def _names(self, table: str) -> list[str]:
        return [str(name) for (name,) in self._all(f"SELECT name FROM {table} ORDER BY id")]

    @cached_property
    def channels(self) -> list[str]:
        return self._names("channels")

    @cached_property
    def labels(self) -> list[str]:
        return self._names("labels")

    @cached_property
    def thread_names(self) -> dict[tuple[int, int], str]:
        return {(p, t): str(n) for p, t, n in self._all("SELECT pid, tid, name FROM threads")}

    @cached_property
    def details(self) -> dict[int, str]:
        """Details by event number, of those that have some: texts of JSON objects."""
        sql = f"SELECT details FROM events {_ORDER}"
        found = {i: str(d) for i, (d,) in enumerate(self._all(sql)) if d}
        try:
            is_whole = all(isinstance(json.loads(text), dict) for text in found.values())
        except ValueError:
            is_whole = False
        if not is_whole:
            raise self._damaged("details of an event are no JSON object")
        return found

    @cached_property
    def events(self) -> EventColumns:
        sql = f"SELECT pid, tid, channel, label, start_ns, duration_ns FROM events {_ORDER}"
        try:
            columns = np.array(self._all(sql), np.int64).reshape(-1, 6).T
        except (TypeError, ValueError, OverflowError) as error:
            raise self._damaged(str(error)) from None
        depth, parent = _nesting(columns)
        pid, tid, channel, label, start_ns, duration_ns = columns
        return EventColumns(pid, tid, channel, label, start_ns, duration_ns, depth, parent)

    @cached_property
    def series(self) -> list[dict[str, object]]:
        """Graphs: name, unit, and columns of time and value for each series."""
        found = []
        for number, graph, name, unit in self._all("SELECT id, graph, name, unit FROM series"):
            sql = "SELECT time_ns, value FROM samples WHERE series = ? ORDER BY time_ns"
            rows = np.array(self._all(sql, (number,)), np.float64).reshape(-1, 2)
            sql_times = "SELECT time_ns FROM samples WHERE series = ? ORDER BY time_ns"
            times = np.array(self._all(sql_times, (number,)), np.int64).reshape(-1)
            found.append(
                {"graph": graph, "name": name, "unit": unit, "time_ns": times, "value": rows[:, 1]}
            )
        return found

    @cached_property
    def heatmaps(self) -> list[dict[str, object]]:
        """Heat maps: edges, times and counts uint64[n_times, n_bins]."""
        found = []
        for number, name, unit, edges in self._all("SELECT id, name, unit, edges FROM heatmaps"):
            sql = "SELECT time_ns, bin_quantities FROM heatmap_data WHERE heatmap = ? ORDER BY 1"
            rows = self._all(sql, (number,))
            listed = json.loads(edges)
            counts = [np.frombuffer(data, "<u8") for _, data in rows]
            if any(len(c) != len(listed) - 1 for c in counts):
                raise self._damaged(f"heat map {name!r} has other bins than edges")
            table = np.array(counts, np.uint64).reshape(-1, len(listed) - 1)
            times = np.array([t for t, _ in rows], np.int64)
            found.append(
                {"name": name, "unit": unit, "edges": listed, "time_ns": times, "counts": table}
            )
        return found

    # -- pva's names -------------------------------------------------------------------------------

    @property
    def processes(self) -> list["Process"]:
        return [Process(self, int(pid)) for pid in np.unique(self.events.pid)]

    def process(self, pid: int) -> "Process":
        return Process(self, pid)


_ORDER = "ORDER BY pid, tid, start_ns, duration_ns DESC, rowid DESC"


def _nesting(columns: Ints) -> tuple[Ints, Ints]:
    """Depth and parent of events in the order of `_ORDER`."""
    n = columns.shape[1]
    depth, parent = np.zeros(n, np.int64), np.full(n, -1, np.int64)
    around: list[tuple[int, int]] = []  # (event, its end)
    thread = None
    pids, tids, _, _, starts, durations = columns.tolist()
    for i in range(n):
        if thread != (pids[i], tids[i]):
            thread, around = (pids[i], tids[i]), []
        end = starts[i] + max(0, durations[i])
        while around and not (around[-1][1] >= end and around[-1][1] > starts[i]):
            around.pop()
        if around:
            depth[i], parent[i] = depth[around[-1][0]] + 1, around[-1][0]
        if durations[i] >= 0:
            around.append((i, end))
    return depth, parent


def _opened(path: Path) -> sqlite3.Connection:
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise FileLoadError(
            f"cannot read the trace {str(path)!r}: {error.strerror or error}.",
            mend="give the path of a .pvti file",
        ) from error
    if head != b"SQLite format 3\x00":
        raise FileLoadError(f"{str(path)!r} is no trace.", mend="give a .pvti that Tremula wrote")
    uri = f"{path.resolve().as_uri()}?mode=ro"
    database = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
    try:
        database.execute("PRAGMA trusted_schema = OFF")
        found = {n for (n,) in database.execute("SELECT name FROM sqlite_master")}
    except sqlite3.DatabaseError as error:
        database.close()
        raise FileLoadError(
            f"trace {str(path)!r} is truncated or damaged ({error}).", mend="record it again"
        ) from error
    if not set(TABLES) <= found:
        database.close()
        raise FileLoadError(
            f"{str(path)!r} is a database, but no trace.", mend="give a .pvti that Tremula wrote"
        )
    return database


@dataclass(frozen=True)
class Event:
    _reader: TraceReader
    _id: int

    @property
    def label(self) -> str:
        return self._reader.labels[int(self._reader.events.label[self._id])]

    @property
    def channel(self) -> str:
        return self._reader.channels[int(self._reader.events.channel[self._id])]

    @property
    def timestamp(self) -> float:
        """Microseconds since 1970."""
        return int(self._reader.events.start_ns[self._id]) / 1000

    @property
    def duration(self) -> float:
        """Microseconds; 0 of an instant."""
        return max(0, int(self._reader.events.duration_ns[self._id])) / 1000

    @property
    def metadata(self) -> str:
        """JSON, or empty."""
        return self._reader.details.get(self._id, "")

    def children(self) -> list["Event"]:
        mine = np.flatnonzero(self._reader.events.parent == self._id)
        return [Event(self._reader, i) for i in mine.tolist()]

    def __repr__(self) -> str:
        return f"Event({self.channel!r}, {self.label!r}, {self.duration:.1f} µs)"


@dataclass(frozen=True)
class Thread:
    _reader: TraceReader
    _pid: int
    tid: int

    @property
    def name(self) -> str:
        return self._reader.thread_names.get((self._pid, self.tid), "")

    @property
    def events(self) -> LazyList[Event]:
        """Events that no other event encloses."""
        events = self._reader.events
        mine = (events.pid == self._pid) & (events.tid == self.tid) & (events.depth == 0)
        numbers = np.flatnonzero(mine)
        return LazyList(len(numbers), lambda i: Event(self._reader, int(numbers[i])))


@dataclass(frozen=True)
class Process:
    _reader: TraceReader
    pid: int

    @property
    def threads(self) -> list[Thread]:
        events = self._reader.events
        return [
            Thread(self._reader, self.pid, int(tid))
            for tid in np.unique(events.tid[events.pid == self.pid])
        ]

    def thread(self, tid: int) -> Thread:
        found = [t for t in self.threads if t.tid == tid]
        if not found:
            raise MissingProfileData(
                f"process {self.pid} has no thread {tid}.",
                mend=f"it has {[t.tid for t in self.threads]}",
            )
        return found[0]


def openTrace(path: str | os.PathLike[str]) -> TraceReader:
    """Open a trace."""
    return TraceReader(path)
