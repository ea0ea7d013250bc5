"""How far long work has come: a bar on a terminal, in a log a line every ten seconds.

What ends soon shows nothing. `TREMULA_QUIET=1`, which `tremula --quiet` sets for itself and the
processes it starts, shows nothing at all.
"""

import os
import shutil
import sys
import threading
import time
from typing import IO

QUIET = "TREMULA_QUIET"
FIRST_S = 0.5  # what ends earlier is not worth a line
BETWEEN_S = 0.2  # on a terminal: more often is unreadable
LOG_S = 10.0  # between two lines of a log
_N_BLOCKS = 20


def is_quiet() -> bool:
    return os.environ.get(QUIET, "") not in {"", "0"}


class ProgressLine:
    """One piece of long work, between `start` and `stop`.

    A thread renews the line, so that the time goes on while nothing is reported. A line `after`
    another one continues its time, and is written when that one would have been.
    """

    def __init__(
        self, title: str, stream: IO[str] | None = None, *, after: "ProgressLine | None" = None
    ):
        self.title = title
        self._stream = sys.stderr if stream is None else stream
        # No stream: it was closed by what started this process.
        self.is_shown = self._stream is not None and not is_quiet()
        is_shown = self.is_shown
        self._is_terminal = is_shown and self._stream is not None and self._stream.isatty()
        self._share: float | None = None
        self._detail, self._widest = "", 0
        self._began_s = after._began_s if after else time.monotonic()
        self._due_s = after._due_s if after else None  # when the next line is written
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, share: float | None, detail: str = "") -> None:
        """Report the share done, 0 … 1, or None if it is not known; and what is being done."""
        self._share, self._detail = share, detail

    def start(self) -> "ProgressLine":
        if self.is_shown:
            if self._due_s is None:
                self._due_s = time.monotonic() + (FIRST_S if self._is_terminal else LOG_S)
            self._thread = threading.Thread(target=self._renew, daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self.clear()

    def print(self, text: str) -> None:
        """Print a line of results to standard output, above the bar."""
        with self._lock:
            self._clear()
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def log(self, text: str) -> None:
        """Write an extra line into a log; a terminal has the bar."""
        if self.is_shown and not self._is_terminal:
            with self._lock:
                self._stream.write(f"{text}\n")
                self._stream.flush()

    def clear(self) -> None:
        with self._lock:
            self._clear()

    def text(self) -> str:
        """The line as it is now: `sweeping: 45 % (0:12) resnet`."""
        seconds = int(time.monotonic() - self._began_s)
        elapsed = f"{seconds // 60}:{seconds % 60:02d}"
        share = "" if self._share is None else f" {100 * min(1.0, max(0.0, self._share)):.0f} %"
        bar = ""
        if self._is_terminal and self._share is not None:
            n_full = int(_N_BLOCKS * min(1.0, max(0.0, self._share)))
            bar = f" {'█' * n_full}{'░' * (_N_BLOCKS - n_full)}"
        detail = f" {self._detail}" if self._detail else ""
        return f"{self.title}:{bar}{share} ({elapsed}){detail}"

    def _renew(self) -> None:
        while not self._ended.wait(max(0.0, (self._due_s or 0.0) - time.monotonic())):
            with self._lock:
                self._write()
            self._due_s = time.monotonic() + (BETWEEN_S if self._is_terminal else LOG_S)

    def _write(self) -> None:
        line = self.text()
        try:
            if self._is_terminal:
                width = max(1, shutil.get_terminal_size().columns - 1)
                line = line[:width]
                self._widest = max(self._widest, len(line))
                self._stream.write(f"\r{line.ljust(min(self._widest, width))}")
            else:
                self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError):  # the reader is gone: the work continues
            self._ended.set()

    def _clear(self) -> None:
        if self._widest:
            self._stream.write(f"\r{' ' * self._widest}\r")
            self._stream.flush()
            self._widest = 0
