"""Named spans of host time, and numbers. Off, they cost a call; on, see vision/trace."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from tremula.base.lazy import vision

OPTIONS_VARIABLE = "PVTI_OPTIONS"
# Channels of engines, of models that are compiled, of processes that run together.
POPLAR, COMPILATION, POPDIST = "poplar", "compilation", "popdist"


class TraceRecorder(Protocol):
    """Records spans and numbers while a trace is open."""

    def span(
        self, channel: str, label: str, details: Mapping[str, object]
    ) -> AbstractContextManager[object]: ...

    def sample(self, graph: str, series: str, value: float, unit: str) -> None: ...


class _Switch:
    """Whether a trace is open, and whether the environment has been checked for one."""

    recorder: TraceRecorder | None = None
    has_looked = False


_NOTHING = nullcontext()


def span(channel: str, label: str, **details: object) -> AbstractContextManager[object]:
    """A context manager whose block is recorded, with its details, if a trace is open."""
    if _Switch.recorder is not None:
        return _Switch.recorder.span(channel, label, details)
    if not _Switch.has_looked:
        _look()
        return span(channel, label, **details)
    return _NOTHING


def is_tracing() -> bool:
    """Whether a trace is open: ask before computing what only a trace needs."""
    if not _Switch.has_looked:
        _look()
    return _Switch.recorder is not None


def sample(graph: str, series: str, value: float, unit: str = "") -> None:
    """A number of a series, now, if a trace is open."""
    if is_tracing() and _Switch.recorder is not None:
        _Switch.recorder.sample(graph, series, value, unit)


def set_recorder(recorder: TraceRecorder | None) -> None:
    """Record from now on, or stop; for vision/trace/recorder.py."""
    _Switch.recorder, _Switch.has_looked = recorder, True


def _look() -> None:
    """Check once whether the environment asks for a trace."""
    _Switch.has_looked = True
    if os.environ.get(OPTIONS_VARIABLE, "").strip():
        vision("trace.recorder").start_from_environment()
