"""A progress bar on one line of standard error."""

import sys
from collections.abc import Callable
from typing import IO


class ProgressBar:
    """Shows per cent done; silent unless it is wanted and the stream is a terminal."""

    def __init__(self, title: str, is_wanted: bool, stream: IO[str] | None = None):
        self.title = title
        self.stream = stream or sys.stderr
        self.is_shown = is_wanted and self.stream.isatty()
        self._last = -1

    def __enter__(self) -> "ProgressBar":
        self.show(0)
        return self

    def __exit__(self, failed: object, *_rest: object) -> None:
        if failed is None:
            self.show(100)
        if self.is_shown:
            self.stream.write("\n")

    def part(self, begin: int, end: int) -> Callable[[int, int], None]:
        """A progress function that covers the share from `begin` to `end` per cent."""

        def progress(done: int, total: int) -> None:
            self.show(begin + (end - begin) * done // max(total, 1))

        return progress

    def show(self, percent: int) -> None:
        if self.is_shown and percent != self._last:
            self._last = percent
            self.stream.write(f"\r{self.title}: {percent:3d}%|{'█' * (percent // 5):20s}|")
            self.stream.flush()
