"""The system trace: spans, instants and numbers over host time, in channels.

    from tremula.vision import trace

    trace.start("reports")
    data = trace.channel("data")
    with data.span("load batch"):
        ...
    trace.stop()

While no trace is open, everything here costs a function call and does nothing.
"""

import atexit
import functools
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from tremula.base.errors import InvalidOption
from tremula.base.tracing import OPTIONS_VARIABLE, set_recorder
from tremula.vision.trace.clerk import HOST, Clerk
from tremula.vision.trace.file import TraceFile

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_NOTHING = nullcontext()


class OpenTrace:
    """The one open trace of a process, and channels by name."""

    file: TraceFile | None = None
    ends_at_ns: int = 0  # 0: never
    channels: dict[str, "EventChannel"] = {}  # noqa: RUF012 - there is one state
    enabled: frozenset[str] | None = None  # None: all
    clerk: "Clerk | None" = None
    lock = threading.RLock()
    inherited: list[TraceFile] = []  # noqa: RUF012 - of a forked process: its parent's, kept shut


class EventChannel:
    """A source of events, shown in a separate row. Use `channel` to make one."""

    def __init__(self, name: str):
        self.name, self.is_enabled = name, True

    @property
    def is_recording(self) -> bool:
        """Is anything of it recorded now?"""
        if OpenTrace.file is None or not self.is_enabled:
            return False
        if OpenTrace.ends_at_ns and time.monotonic_ns() > OpenTrace.ends_at_ns:
            stop()
            return False
        return True

    def span(self, label: str, **details: object) -> AbstractContextManager[object]:
        """A context manager: its block is one event. Details are anything JSON can hold."""
        return _Span(self, label, details) if self.is_recording else _NOTHING

    def traced(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """Decorator: every call is one event."""
        name = getattr(function, "__qualname__", str(function))

        @functools.wraps(function)
        def traced(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            if not self.is_recording:
                return function(*args, **kwargs)
            with _Span(self, name, {}):
                return function(*args, **kwargs)

        return traced

    def instant(self, label: str, **details: object) -> None:
        """An event without a duration."""
        if self.is_recording:
            _record(self.name, label, time.time_ns(), -1, details)

    def begin(self, label: str) -> None:
        """Begin an event; `end` with the same label, on the same thread, ends it."""
        if self.is_recording:
            _open_events().append((self.name, label, time.time_ns()))

    def end(self, label: str) -> None:
        """End the stretch of this name."""
        waiting = _open_events()
        for at in range(len(waiting) - 1, -1, -1):
            if waiting[at][:2] == (self.name, label):
                start_ns = waiting.pop(at)[2]
                _record(self.name, label, start_ns, time.time_ns() - start_ns, {})
                return


class _Span:
    __slots__ = ("channel", "details", "label", "start_ns")

    def __init__(self, channel: EventChannel, label: str, details: Mapping[str, object]):
        self.channel, self.label, self.details = channel, label, details

    def __enter__(self) -> "_Span":
        self.start_ns = time.time_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        duration_ns = time.time_ns() - self.start_ns
        _record(self.channel.name, self.label, self.start_ns, duration_ns, self.details)


class _Threads(threading.local):
    def __init__(self) -> None:
        self.open_events: list[tuple[str, str, int]] = []


_threads = _Threads()


def _open_events() -> list[tuple[str, str, int]]:
    return _threads.open_events


def _record(
    channel: str, label: str, start_ns: int, duration_ns: int, details: Mapping[str, object]
) -> None:
    file = OpenTrace.file
    if file is not None:
        text = json.dumps(details, default=str) if details else ""
        file.event(channel, label, start_ns, duration_ns, text)


class Graph:
    """Numbers over time, in series of one unit: power, loss, bytes."""

    def __init__(self, name: str, unit: str = "", *, is_enabled: bool = True):
        self.name, self.unit, self.is_enabled = name, unit, is_enabled

    def series(self, name: str) -> "Series":
        return Series(self, name)


class Series:
    def __init__(self, graph: Graph, name: str):
        self.graph, self.name = graph, name

    def add(self, value: float) -> None:
        """A value, now."""
        file = OpenTrace.file
        if file is not None and self.graph.is_enabled:
            graph = self.graph
            file.sample(graph.name, graph.unit, self.name, time.time_ns(), float(value))


class Heatmap:
    """Counts of values by bin, over time."""

    def __init__(self, name: str, edges: Iterable[float], unit: str = ""):
        self.name, self.edges, self.unit = name, [float(e) for e in edges], unit
        if len(self.edges) < 2 or sorted(set(self.edges)) != self.edges:
            raise InvalidOption(
                f"edges of heat map {name!r} must ascend, got {self.edges}.",
                hint="give at least two numbers, each larger than the one before",
            )

    def add(self, values: Iterable[float]) -> None:
        """Count values into bins, now; values outside all bins are ignored."""
        file = OpenTrace.file
        if file is not None:
            import numpy as np

            counts, _ = np.histogram(np.asarray(list(values), np.float64), self.edges)
            file.bins(self.name, self.unit, self.edges, time.time_ns(), counts)


def channel(name: str) -> EventChannel:
    """The channel of that name; always the same object."""
    with OpenTrace.lock:
        if name not in OpenTrace.channels:
            made = OpenTrace.channels[name] = EventChannel(name)
            made.is_enabled = OpenTrace.enabled is None or name in OpenTrace.enabled
        return OpenTrace.channels[name]


_channel = channel


def channels() -> list[EventChannel]:
    with OpenTrace.lock:
        return list(OpenTrace.channels.values())


def start(
    directory: str | os.PathLike[str] = ".",
    *,
    only: Iterable[str] | None = None,
    duration_s: float = 0,
) -> Path:
    """Open a trace file and record from now on, all channels or just some; returns its path."""
    with OpenTrace.lock:
        stop()
        OpenTrace.enabled = None if only is None else frozenset(only)
        for known in OpenTrace.channels.values():
            known.is_enabled = OpenTrace.enabled is None or known.name in OpenTrace.enabled
        OpenTrace.ends_at_ns = time.monotonic_ns() + int(duration_s * 1e9) if duration_s > 0 else 0
        file = OpenTrace.file = TraceFile(Path(directory))
        samples_host = OpenTrace.enabled is None or HOST in OpenTrace.enabled
        OpenTrace.clerk = Clerk(file, samples_host=samples_host, on_failure=_give_up)
        set_recorder(_LayerRecorder())
        return file.path


def stop() -> Path | None:
    """Close the trace, if one is open; returns its path."""
    with OpenTrace.lock:
        file, clerk = OpenTrace.file, OpenTrace.clerk
        OpenTrace.file = OpenTrace.clerk = None
        set_recorder(None)
        if file is None or clerk is None:
            return None
        clerk.end()
        return file.path


def _give_up(file: TraceFile, error: Exception) -> None:
    """Warn that a trace can no longer be written; the program continues without it."""
    if OpenTrace.file is file:
        OpenTrace.file = OpenTrace.clerk = None
        set_recorder(None)
    warnings.warn(
        f"the system trace {file.path} can no longer be written and ends early: {error}",
        RuntimeWarning,
        stacklevel=2,
    )


def _leave_to_parent() -> None:
    """A forked process inherits its parent's trace, but must not write to it."""
    if OpenTrace.file is not None:
        OpenTrace.inherited.append(OpenTrace.file)
    OpenTrace.file = OpenTrace.clerk = None
    OpenTrace.lock = threading.RLock()
    set_recorder(None)


os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(stop)


def current_path() -> Path | None:
    return None if OpenTrace.file is None else OpenTrace.file.path


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """How a trace was started, so that a child process can start one alike."""

    directory: Path
    only: frozenset[str] | None

    def start(self) -> None:
        start(self.directory, only=self.only)


def current_request() -> TraceRequest | None:
    """What a child process needs to record a trace beside this one; None if none is open."""
    path = current_path()
    return None if path is None else TraceRequest(path.parent, OpenTrace.enabled)


class _LayerRecorder:
    """The recorder for the engine and other layers that cannot import this module."""

    def span(
        self, channel: str, label: str, details: Mapping[str, object]
    ) -> AbstractContextManager[object]:
        return _channel(channel).span(label, **details)

    def sample(self, graph: str, series: str, value: float, unit: str) -> None:
        file = OpenTrace.file
        if file is not None:
            file.sample(graph, unit, series, time.time_ns(), float(value))


def start_from_environment() -> Path | None:
    """Start as PVTI_OPTIONS says; unreadable options mean defaults, as in libpvti."""
    text = os.environ.get(OPTIONS_VARIABLE, "").strip()
    if not text or OpenTrace.file is not None:
        return current_path()
    try:
        details = json.loads(text)
    except ValueError:
        details = {}
    details = details if isinstance(details, dict) else {}
    if str(details.get("enable", "true")).lower() != "true":
        return None
    names = details.get("channels")
    only = [str(n) for n in names] if isinstance(names, list) and names else None
    seconds = details.get("duration", 0)
    return start(
        str(details.get("directory", ".")),
        only=only,
        duration_s=float(seconds) if str(seconds).replace(".", "", 1).isdigit() else 0,
    )
