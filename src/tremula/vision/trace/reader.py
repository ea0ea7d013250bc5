"""Reads trace files; `openTrace` has pva's names for processes, threads and events."""

import json
import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tremula.base.errors import MissingProfileData
from tremula.vision.lazy_list import LazyList
from tremula.vision.report.database import DatabaseKind, DatabaseReader
from tremula.vision.trace.file import APPLICATION, SCHEMA_VERSION, TABLES

Ints = np.ndarray
_LATEST_NS = (1 << 62) - 1  # in the year 2116: the sum of two times stays within 64 bits


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


_TRACE = DatabaseKind(
    name="trace",
    application=APPLICATION,
    schema_version=SCHEMA_VERSION,
    tables=TABLES,
    wanted="give a .pvti that Tremula wrote",
    again="record it again",
    instead=lambda _: "give the path of a .pvti file",
    may_grow=True,
)


class TraceReader(DatabaseReader):
    """One trace.

    A trace grows while its process runs, so it cannot carry a checksum as a report does. Instead
    everything is checked when it is read: types, ranges, and references between tables.
    """

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(path, _TRACE)
        for key in ("started_ns", "pid"):
            value = self.info.get(key, 0)
            if type(value) is not int or not 0 <= value <= _LATEST_NS:
                self.close()
                raise self.damaged(f"says {value!r} for {key!r}")

    def _names(self, table: str) -> list[str]:
        """Names by number: events refer to them by their place in this list."""
        rows = self.execute(f"SELECT id, name FROM {table} ORDER BY id")
        if [number for number, _ in rows] != list(range(len(rows))):
            raise self.damaged(f"has lost some of its {table}")
        return [str(name) for _, name in rows]

    @cached_property
    def channels(self) -> list[str]:
        return self._names("channels")

    @cached_property
    def labels(self) -> list[str]:
        return self._names("labels")

    @cached_property
    def thread_names(self) -> dict[tuple[int, int], str]:
        return {(p, t): str(n) for p, t, n in self.execute("SELECT pid, tid, name FROM threads")}

    @cached_property
    def details(self) -> dict[int, str]:
        """JSON objects, as text, by event number, of the events that have details."""
        sql = f"SELECT details FROM events {_ORDER}"
        result = {i: str(d) for i, (d,) in enumerate(self.execute(sql)) if d}
        try:
            is_whole = all(isinstance(json.loads(text), dict) for text in result.values())
        except (ValueError, RecursionError):
            is_whole = False
        if not is_whole:
            raise self.damaged("has an event whose details are not a JSON object")
        return result

    @cached_property
    def events(self) -> EventColumns:
        sql = f"SELECT pid, tid, channel, label, start_ns, duration_ns FROM events {_ORDER}"
        columns = self._numbers(self.execute(sql), "i").reshape(-1, 6).T
        pid, tid, channel, label, start_ns, duration_ns = columns
        self._check_range("channel", channel, 0, len(self.channels) - 1)
        self._check_range("label", label, 0, len(self.labels) - 1)
        self._check_range("start", start_ns, 0, _LATEST_NS)
        self._check_range("duration", duration_ns, -1, _LATEST_NS)
        depth, parent = _nesting(columns)
        return EventColumns(pid, tid, channel, label, start_ns, duration_ns, depth, parent)

    @cached_property
    def series(self) -> list[dict[str, object]]:
        """Graphs: name, unit, and columns of time and value for each series."""
        result = []
        sql = "SELECT time_ns, value FROM samples WHERE series = ? ORDER BY time_ns"
        for number, *names in self.execute("SELECT id, graph, name, unit FROM series"):
            rows = self.execute(sql, (number,))
            times = self._times([t for t, _ in rows])
            values = self._numbers([v for _, v in rows], "f")
            named = zip(("graph", "name", "unit"), map(str, names), strict=True)
            result.append({**dict(named), "time_ns": times, "value": values})
        return result

    @cached_property
    def heatmaps(self) -> list[dict[str, object]]:
        """Heat maps: edges, times, and counts as uint64[n_times, n_bins]."""
        result = []
        sql = "SELECT time_ns, bin_quantities FROM heatmap_data WHERE heatmap = ? ORDER BY 1"
        for number, name, unit, edges in self.execute("SELECT id, name, unit, edges FROM heatmaps"):
            rows = self.execute(sql, (number,))
            listed, counts = self._counts(str(name), edges, [data for _, data in rows])
            result.append(
                {
                    "name": str(name), "unit": str(unit), "edges": listed,
                    "time_ns": self._times([t for t, _ in rows]), "counts": counts,
                }
            )  # fmt: skip
        return result

    def _counts(self, name: str, edges: str, blobs: list[bytes]) -> tuple[list[float], Ints]:
        """The edges of a heat map, and its counts: uint64[n_times, n_bins]."""
        try:
            listed = [float(edge) for edge in json.loads(edges)]
            counts = [np.frombuffer(blob, "<u8") for blob in blobs]
            n_bins = max(0, len(listed) - 1)  # -1 would let reshape choose
            return listed, np.array(counts, np.uint64).reshape(len(counts), n_bins)
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise self.damaged(
                f"has a heat map {name!r} whose bins do not match its edges"
            ) from None

    def _times(self, values: list) -> Ints:
        times = self._numbers(values, "i")
        self._check_range("time", times, 0, _LATEST_NS)
        return times

    def _numbers(self, values: list, kind: str) -> Ints:
        """Values that SQLite found, as int64 ("i") or float64 ("f")."""
        dtype = np.dtype(f"{kind}8")
        if not values:
            return np.zeros(0, dtype)
        try:
            array = np.array(values)
        except ValueError:  # texts and numbers of several lengths
            array = np.array(values, object)
        if kind == "f" and all(isinstance(v, float | None) for v in values):
            array = array.astype(np.float64)  # SQLite stores NaN as NULL
        if array.dtype.kind not in (kind, "i"):
            raise self.damaged("has something other than a number in a column of numbers")
        return array.astype(dtype)

    def _check_range(self, what: str, values: Ints, least: int, most: int) -> None:
        if len(values) and (values.min() < least or values.max() > most):
            wrong = values[(values < least) | (values > most)][0]
            raise self.damaged(f"has an event or sample with {what} {wrong}")

    # -- pva's names -------------------------------------------------------------------------------

    @property
    def processes(self) -> list["Process"]:
        """Processes that recorded events."""
        return [Process(self, int(pid)) for pid in np.unique(self.events.pid)]

    def process(self, pid: int) -> "Process":
        """The process of this number."""
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


@dataclass(frozen=True)
class Event:
    """Something that took time, or an instant; with the events it encloses.

    `timestamp` and `duration` are in microseconds.
    """

    _reader: TraceReader
    _id: int

    @property
    def label(self) -> str:
        """What the instrumented code calls it."""
        return self._reader.labels[int(self._reader.events.label[self._id])]

    @property
    def channel(self) -> str:
        """The channel it was recorded on."""
        return self._reader.channels[int(self._reader.events.channel[self._id])]

    @property
    def timestamp(self) -> float:
        """Microseconds since 1970."""
        return int(self._reader.events.start_ns[self._id]) / 1000

    @property
    def duration(self) -> float:
        """Microseconds; 0 for an instant."""
        return max(0, int(self._reader.events.duration_ns[self._id])) / 1000

    @property
    def metadata(self) -> str:
        """JSON, or empty."""
        return self._reader.details.get(self._id, "")

    def children(self) -> list["Event"]:
        """The events directly inside it, in order of time."""
        mine = np.flatnonzero(self._reader.events.parent == self._id)
        return [Event(self._reader, i) for i in mine.tolist()]

    def __repr__(self) -> str:
        return f"Event({self.channel!r}, {self.label!r}, {self.duration:.1f} µs)"


@dataclass(frozen=True)
class Thread:
    """A thread of a process, with the events that no other event encloses."""

    _reader: TraceReader
    _pid: int
    tid: int

    @property
    def name(self) -> str:
        """The thread's name, or empty."""
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
    """A process of a trace, with its threads."""

    _reader: TraceReader
    pid: int

    @property
    def threads(self) -> list[Thread]:
        """Threads that recorded events."""
        events = self._reader.events
        return [
            Thread(self._reader, self.pid, int(tid))
            for tid in np.unique(events.tid[events.pid == self.pid])
        ]

    def thread(self, tid: int) -> Thread:
        """The thread of this number."""
        result = [t for t in self.threads if t.tid == tid]
        if not result:
            raise MissingProfileData(
                f"process {self.pid} has no thread {tid}.",
                hint=f"it has {[t.tid for t in self.threads]}",
            )
        return result[0]


def openTrace(path: str | os.PathLike[str]) -> TraceReader:
    """Open a trace."""
    return TraceReader(path)
