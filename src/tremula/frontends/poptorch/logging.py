"""The log of PopTorch: levels by name, one handler, repeated messages shown only a few times."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tremula.frontends.popart.logging import ROOT as POPART_LOGGER
from tremula.frontends.shared.log_lines import LEVELS, make_handler, name_levels

_LEGACY_NUMBERS = {0: "TRACE", 1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERR", 6: "OFF"}
_PUBLIC = ("DEBUG", "ERR", "INFO", "OFF", "TRACE", "WARN")
DEFAULT_LEVEL = "WARN"
MAX_REPEATS = 4  # the default of Options.maxRepeatLogs

TRACE = LEVELS["TRACE"]
LOGGER = logging.getLogger("poptorch::python")


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
    """Show messages of PopART from this level on."""
    if not isinstance(level, str) or level not in _PUBLIC:
        raise ValueError(f"Level must be one of {', '.join(_PUBLIC)}; got {level!r}")
    POPART_LOGGER.setLevel(LEVELS[level])


def set_max_repeats(n_times: int) -> None:
    """Set how often the same message is shown: `Options.maxRepeatLogs`."""
    REPEATS.limit = n_times
    REPEATS.forget()


def _set_up() -> None:
    name_levels()
    if LOGGER.handlers:
        return
    handler = make_handler(os.environ.get("POPTORCH_LOG_DEST", "stderr"))
    handler.addFilter(REPEATS)
    LOGGER.addHandler(handler)
    LOGGER.propagate = False  # shown once, whatever the script does with Python's root logger
    setLogLevel(os.environ.get("POPTORCH_LOG_LEVEL", DEFAULT_LEVEL))


_set_up()
