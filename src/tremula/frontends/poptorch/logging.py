"""The log of PopTorch: levels by name, one handler, repeated messages shown only a few times."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    "OFF": logging.CRITICAL + 10,
}
_LEGACY_NUMBERS = {0: "TRACE", 1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERR", 6: "OFF"}
_PUBLIC = ("DEBUG", "ERR", "INFO", "OFF", "TRACE", "WARN")
DEFAULT_LEVEL = "WARN"
MAX_REPEATS = 4  # the default of Options.maxRepeatLogs

TRACE = LEVELS["TRACE"]
LOGGER = logging.getLogger("poptorch::python")
POPART_LOGGER = logging.getLogger("popart")


class RepeatFilter(logging.Filter):
    """Lets the same message through a few times; the last one says that no more follow."""

    def __init__(self, limit: int = MAX_REPEATS):
        super().__init__()
        self.limit = limit
        self._n_seen: dict[tuple[int, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        key = (record.levelno, text)
        n_seen = self._n_seen[key] = self._n_seen.get(key, 0) + 1
        record.is_last_shown = n_seen == self.limit
        return n_seen <= self.limit

    def forget(self) -> None:
        """Start counting again."""
        self._n_seen.clear()


class _Form(logging.Formatter):
    """PopTorch's form of a line: level in lower case, a note where repetitions end."""

    def format(self, record: logging.LogRecord) -> str:
        record = copy(record)  # other handlers must see it unchanged
        record.levelname = record.levelname.lower()
        note = " (not shown again)" if getattr(record, "is_last_shown", False) else ""
        return super().format(record) + note


class _LogHandler(logging.StreamHandler):
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


REPEATS = RepeatFilter()


def setLogLevel(level: str | int) -> None:  # noqa: N802
    """Show messages from this level on: TRACE, DEBUG, INFO, WARN, ERR or OFF."""
    if isinstance(level, int):
        if level not in _LEGACY_NUMBERS:
            numbers = ", ".join(str(number) for number in _LEGACY_NUMBERS)
            raise ValueError(f"Invalid log level integer: {level}. Valid values are {numbers}")
        level = _LEGACY_NUMBERS[level]
    if level not in LEVELS:
        known = f"{', '.join(_PUBLIC[:-1])} and {_PUBLIC[-1]}"
        raise ValueError(f"Unknown log level: {level}. Valid values are {known}")
    LOGGER.setLevel(LEVELS[level])


@contextmanager
def shown_from(level: str) -> Iterator[None]:
    """Show messages from this level on inside a `with`, then as before."""
    before = LOGGER.level
    setLogLevel(level)
    try:
        yield
    finally:
        LOGGER.setLevel(before)


def setPopartLogLevel(level: str) -> None:  # noqa: N802
    """The same for the messages of the compiler."""
    if not isinstance(level, str) or level not in _PUBLIC:
        raise ValueError(f"Level must be one of {', '.join(_PUBLIC)}; got {level!r}")
    POPART_LOGGER.setLevel(LEVELS[level])


def set_max_repeats(n_times: int) -> None:
    """Set how often the same message is shown: `Options.maxRepeatLogs`."""
    REPEATS.limit = n_times
    REPEATS.forget()


def _make_handler(destination: str) -> logging.Handler:
    if destination in ("stdout", "stderr"):
        return _LogHandler(destination)
    return logging.FileHandler(destination, encoding="utf-8")


def _set_up() -> None:
    for name, number in LEVELS.items():
        if name not in ("DEBUG", "INFO"):
            shown = {"WARN": "WARNING", "ERR": "ERROR"}.get(name, name)
            logging.addLevelName(number, shown)
    if LOGGER.handlers:
        return
    form = "[%(asctime)s.%(msecs)03d] [%(name)s] [%(levelname)s] %(message)s"
    handler = _make_handler(os.environ.get("POPTORCH_LOG_DEST", "stderr"))
    handler.setFormatter(_Form(form, datefmt="%H:%M:%S"))
    handler.addFilter(REPEATS)
    LOGGER.addHandler(handler)
    LOGGER.propagate = False  # shown once, whatever the script does with Python's root logger
    setLogLevel(os.environ.get("POPTORCH_LOG_LEVEL", DEFAULT_LEVEL))


_set_up()
