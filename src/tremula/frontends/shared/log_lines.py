"""Lines of the logs of PopART and PopTorch: the names of levels, their form, where they go."""

import logging
import sys
from copy import copy
from typing import TextIO

LEVELS = {
    "TRACE_ALL": 3,
    "TRACE": 5,
    "DEBUG_IR": 8,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
_FORM = "[%(asctime)s.%(msecs)03d] [%(name)s] [%(levelname)s] %(message)s"


class LineForm(logging.Formatter):
    """Time, name, level in lower case, message; a note where repetitions end."""

    def __init__(self) -> None:
        super().__init__(_FORM, datefmt="%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record = copy(record)  # other handlers must see it unchanged
        record.levelname = record.levelname.lower()
        note = " (not shown again)" if getattr(record, "is_last_shown", False) else ""
        return super().format(record) + note


class StreamOfTheMoment(logging.StreamHandler):
    """Writes to the stdout or stderr of the moment, not to that of the import."""

    def __init__(self, stream_name: str):
        self._stream_name = stream_name
        super().__init__(getattr(sys, stream_name))

    @property
    def stream(self) -> TextIO:
        return getattr(sys, self._stream_name)

    @stream.setter
    def stream(self, _value: TextIO) -> None:
        """Ignored: `StreamHandler` sets it once, this class looks it up."""


def make_handler(destination: str) -> logging.Handler:
    """A handler for stdout, stderr, or the file of that name."""
    is_stream = destination in ("stdout", "stderr")
    handler = (
        StreamOfTheMoment(destination)
        if is_stream
        else logging.FileHandler(destination, encoding="utf-8")
    )
    handler.setFormatter(LineForm())
    return handler


def name_levels() -> None:
    """Let Python's log know the names of the levels that it does not have itself."""
    for name, number in LEVELS.items():
        if name not in ("DEBUG", "INFO", "CRITICAL"):
            logging.addLevelName(number, {"WARN": "WARNING", "ERR": "ERROR"}.get(name, name))
