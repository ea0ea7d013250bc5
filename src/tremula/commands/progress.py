"""Progress of the commands with long work, and `--quiet`, which silences it.

| command | what is counted |
|---|---|
| `demo`, `demo --tiles`, `profile` | calls of training; the time of a compilation |
| `onnx-check`, `run model.onnx`, `serve`, `codelets` | the time of reading, capturing, compiling |
| `load-test` | its seconds |
| `report`, `compare`, `check`, `export`, `view` | the time of reading a report |
| `system powertest` and other tests, `cache check`, `doctor` | the time |
| `sweep`, `plan`, `whatif` | points, candidates, chips |
| `validate` | rows, with the name of the one that is computed |
| `bench` | measurements of the suite |
| `garden run`, `garden run all`, `garden figures` | the time; applications |
| `fuzz run` | cases, in a line for each batch |
| `view --export`, `history`, reports on other computers | packs, reports, bytes |
| compilations of PopTorch and PopXL | passes (`ir/run/progress.py`) |
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tremula.base.progress_line import QUIET, ProgressLine

_T = TypeVar("_T")


@contextmanager
def progress(what: str) -> Iterator[ProgressLine]:
    """Yields a function to call with the share done, 0 … 1; at the end the line is cleared."""
    with _shown(ProgressLine(what)) as line:
        yield line


@contextmanager
def _shown(line: ProgressLine) -> Iterator[ProgressLine]:
    line.start()
    try:
        yield line
    finally:
        line.stop()


def with_progress(what: str, items: Iterable[_T], n_items: int) -> Iterator[_T]:
    """The items as they come, with progress while the next one is made, and none in between.

    0 items: their number is not known, and only the time is shown.
    """
    source, n_done, line = iter(items), 0, None
    while True:
        line = ProgressLine(what, after=line)
        line(n_done / n_items if n_items else None)
        with _shown(line):
            try:
                item = next(source)
            except StopIteration:
                return
        yield item
        n_done += 1


@contextmanager
def quiet(is_wanted: bool) -> Iterator[None]:
    """No progress in this process and those it starts, if requested."""
    before = os.environ.get(QUIET)
    if is_wanted:
        os.environ[QUIET] = "1"
    try:
        yield
    finally:
        if is_wanted:
            os.environ.pop(QUIET, None)
            if before is not None:
                os.environ[QUIET] = before
