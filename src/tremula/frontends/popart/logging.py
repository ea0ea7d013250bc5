"""PopART's log: `popart.getLogger`, for all of it or for one of its modules."""

import logging
import os

from tremula.frontends.shared.log_lines import LEVELS, make_handler, name_levels

_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "CRITICAL", "OFF")
ROOT = logging.getLogger("popart")


class Logger:
    """A log by PopART's names: levels are text, messages are complete sentences."""

    def __init__(self, name: str):
        self._log = ROOT if name == "all" else ROOT.getChild(name)

    def setLevel(self, level: str) -> None:
        """Show messages from this level on: TRACE, DEBUG, INFO, WARN, ERR, CRITICAL or OFF."""
        if level not in _LEVELS:
            raise ValueError(f"Unknown log level: {level}. Valid values are {', '.join(_LEVELS)}")
        self._log.setLevel(LEVELS[level])

    def debug(self, message: str) -> None:
        """Log a message that helps to find a mistake."""
        self._log.debug("%s", message)

    def info(self, message: str) -> None:
        """Log a message about what is being done."""
        self._log.info("%s", message)

    def warn(self, message: str) -> None:
        """Log a warning."""
        self._log.warning("%s", message)

    def error(self, message: str) -> None:
        """Log an error."""
        self._log.error("%s", message)

    def critical(self, message: str) -> None:
        """Log an error after which nothing works."""
        self._log.critical("%s", message)


def getLogger(name: str = "all") -> Logger:
    """The log of one of PopART's modules, or "all" of it."""
    return Logger(name)


def _set_up() -> None:
    name_levels()
    if ROOT.handlers:
        return
    ROOT.addHandler(make_handler(os.environ.get("POPART_LOG_DEST", "stderr")))
    ROOT.propagate = False  # shown once, whatever the script does with Python's root logger
    Logger("all").setLevel(os.environ.get("POPART_LOG_LEVEL", "WARN"))


_set_up()
