"""The bar of a compilation, as PopTorch draws it: one line of standard error."""

import sys
import time
from collections.abc import Callable
from typing import IO

from tremula.base.progress_line import LOG_S, is_quiet


class ProgressBar:
    """Shows per cent done, if requested: a bar on a terminal, else a line every ten seconds."""

    def __init__(self, title: str, is_wanted: bool, stream: IO[str] | None = None):
        self.title = title
        self.stream = stream or sys.stderr
        is_open = self.stream is not None
        is_wanted = is_wanted and is_open and not is_quiet()
        self.is_shown = is_wanted and self.stream.isatty()
        self._is_logged = is_wanted and not self.is_shown
        self._next_s = time.monotonic() + LOG_S
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
        if percent == self._last:
            return
        self._last = percent
        if self.is_shown:
            self.stream.write(f"\r{self.title}: {percent:3d}%|{'█' * (percent // 5):20s}|")
            self.stream.flush()
        elif self._is_logged and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LOG_S
            self.stream.write(f"{self.title}: {percent}%\n")
            self.stream.flush()
