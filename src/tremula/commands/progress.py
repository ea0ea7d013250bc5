"""How far something long has come: one line on a terminal's standard error, elsewhere nothing."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

_FIRST_S, _BETWEEN_S = 0.5, 0.1  # what ends soon is not worth a line; more often is unreadable


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """Yields a function to call with the share done, 0 … 1; at the end the line is cleared."""
    stream: IO[str] = sys.stderr
    is_shown = stream is not None and stream.isatty()  # None: it was closed by who started us
    next_s = time.monotonic() + _FIRST_S
    widest = 0

    def report_share(share: float) -> None:
        nonlocal next_s, widest
        if not is_shown or time.monotonic() < next_s:
            return
        next_s = time.monotonic() + _BETWEEN_S
        width = max(1, shutil.get_terminal_size().columns - 1)
        line = f"{what}: {100 * share:.0f} %"[:width]
        widest = max(widest, len(line))
        stream.write(f"\r{line.ljust(min(widest, width))}")
        stream.flush()

    try:
        yield report_share
    finally:
        if widest:
            stream.write(f"\r{' ' * widest}\r")
            stream.flush()
