"""Named stretches of host time. Off, a stretch costs a function call; on, see vision/trace.py."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from tremula.base.late import vision

OPTIONS_VARIABLE = "PVTI_OPTIONS"


class Recorder(Protocol):
    """What records stretches while a trace is open."""

    def span(self, channel: str, label: str) -> AbstractContextManager[object]: ...


class _Switch:
    """Whether a trace is open; and whether the environment was asked for one."""

    recorder: Recorder | None = None
    has_looked = False


_NOTHING = nullcontext()


def span(channel: str, label: str) -> AbstractContextManager[object]:
    """A context manager whose block is recorded if a trace is open."""
    if _Switch.recorder is not None:
        return _Switch.recorder.span(channel, label)
    if not _Switch.has_looked:
        _look()
        return span(channel, label)
    return _NOTHING


def set_recorder(recorder: Recorder | None) -> None:
    """Record from now on, or stop; for vision/trace.py."""
    _Switch.recorder, _Switch.has_looked = recorder, True


def _look() -> None:
    """Once: whether the environment asks for a trace."""
    _Switch.has_looked = True
    if os.environ.get(OPTIONS_VARIABLE, "").strip():
        vision("trace").start_from_environment()
