"""libpvti's names on the system trace."""

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from tremula.vision.trace import recorder as trace

TraceChannel = trace.EventChannel


def createTraceChannel(name: str) -> TraceChannel:
    """A channel of this name."""
    trace.start_from_environment()
    return trace.channel(name)


def enableTraceChannel(channel: TraceChannel) -> None:
    """Record a channel."""
    channel.is_enabled = True


def disableTraceChannel(channel: TraceChannel) -> None:
    """Stop recording a channel."""
    channel.is_enabled = False


def checkTraceChannel(channel: TraceChannel) -> bool:
    """Whether events of a channel are recorded now."""
    return channel.is_recording


def listTraceChannel() -> list[list[object]]:
    """Names of all channels."""
    return [[channel.name, channel.is_enabled] for channel in trace.channels()]


def createJsonMetadata(text: str) -> dict[str, object]:
    """Details of a tracepoint from JSON text."""
    result = json.loads(text)
    return result if isinstance(result, dict) else {"value": result}


class Tracepoint:
    """`with Tracepoint(channel, label):`; also `begin`, `end` and `event` without an object."""

    def __init__(
        self, channel: TraceChannel, label: str, metadata: dict[str, object] | None = None
    ):
        self._span: AbstractContextManager[object] = channel.span(label, **(metadata or {}))

    def __enter__(self) -> Self:
        self._span.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._span.__exit__(kind, error, at)

    @staticmethod
    def begin(channel: TraceChannel, label: str) -> None:
        """Begin a stretch."""
        channel.begin(label)

    @staticmethod
    def end(channel: TraceChannel, label: str) -> None:
        """End a stretch."""
        channel.end(label)

    @staticmethod
    def event(channel: TraceChannel, label: str, metadata: dict[str, object] | None = None) -> None:
        """Note an instant."""
        channel.instant(label, **(metadata or {}))


def instrument_fn(channel: TraceChannel) -> Callable[[Callable], Callable]:
    """Decorator factory: records calls of the function as events."""
    return channel.traced


def instrument(obj: object, methods: Iterable[str], channel: TraceChannel) -> None:
    """Record calls of some methods of an object or class as events."""
    for name in methods:
        setattr(obj, name, channel.traced(getattr(obj, name)))


class Graph(trace.Graph):
    """Numbers over time, in series that share an axis."""

    def __init__(self, name: str, unit: str = "", enable: bool = True):
        super().__init__(name, unit, is_enabled=enable)

    def addSeries(self, name: str) -> trace.Series:
        """A series of numbers in this graph."""
        return self.series(name)


class HeatmapDouble(trace.Heatmap):
    """A histogram of numbers over time."""


class HeatmapInt(trace.Heatmap):
    """A histogram of whole numbers over time."""


class ThreadName:
    """Names the thread that makes it."""

    def __init__(self, name: str):
        file = trace.OpenTrace.file
        if file is not None:
            file.name_thread(name)


def getCurrentTraceFilename() -> str:
    """The path of the open trace; empty if there is none."""
    path = trace.current_path()
    return "" if path is None else str(path)


def closeTrace() -> None:
    """Close the trace; nothing is recorded afterwards."""
    trace.stop()


traceDrivers = createTraceChannel("drivers")
tracePoplar = createTraceChannel("poplar")
traceFramework = createTraceChannel("framework")
