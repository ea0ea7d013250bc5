"""What tests see of logs: the records that reach the root logger while a test runs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class Logged(logging.Handler):
    """Keeps records; the fixture `logged` is one at the root logger."""

    def __init__(self):
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def text(self) -> str:
        return "\n".join(record.getMessage() for record in self.records)

    def clear(self) -> None:
        self.records.clear()

    @contextmanager
    def at_level(self, level: int, name: str) -> Iterator[None]:
        """A logger has another level inside the block."""
        logger = logging.getLogger(name)
        before = logger.level
        logger.setLevel(level)
        try:
            yield
        finally:
            logger.setLevel(before)
