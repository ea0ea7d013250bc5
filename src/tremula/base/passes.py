"""Named passes, run in order; after each, watchers get its time, its memory and its text.

A pass is a name and a pure function from state to state. `watch_passes` adds a watcher for a while;
TREMULA_DUMP=folder adds one that writes what every pass left as a text file, and a table of times.
"""

import gc
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Protocol, TypeVar

from tremula.base.storage.atomic_file import write_text

DUMP_VARIABLE = "TREMULA_DUMP"

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class PassRecord:
    """Facts about a pass that has run."""

    stage: str  # of which list of passes: "step", "tiles", "graph"
    name: str
    seconds: float
    n_peak_bytes: int  # by how much the process's peak memory grew while it ran


class Watcher(Protocol):
    def __call__(self, record: PassRecord, text: Callable[[], str]) -> None:
        """Called after a pass; `text()` renders what it left, which is slow."""
        ...


_watchers: list[Watcher] = []  # of the whole process: a script may compile in any thread


def run_passes(
    stage: str,
    passes: Sequence[tuple[str, Callable[[State], State]]],
    state: State,
    text_of: Callable[[State], str],
) -> State:
    """Run passes in order. `text_of` renders a state, for watchers only."""
    for name, run in passes:
        with observed_pass(stage, name) as done:
            state = run(state)
            done.append(state)
            done.append(text_of)
    return state


@contextmanager
def garbage_collected_later() -> Iterator[None]:
    """Collect garbage after the block: in a process with many objects, collecting takes long."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def observed_pass(stage: str, name: str) -> Iterator[list]:
    """One pass. The block appends its result to the list, and the function that renders it."""
    watchers = tuple(_watchers)
    dump = _dump_from_environment()
    if dump is not None and dump not in watchers:
        watchers = (*watchers, dump)
    result: list = []
    began, peak = time.perf_counter(), _peak_bytes() if watchers else 0
    yield result
    if watchers:
        seconds, grown = time.perf_counter() - began, _peak_bytes() - peak
        record = PassRecord(stage, name, seconds, grown)
        for watcher in watchers:
            watcher(record, lambda: result[1](result[0]) if result else "")


@contextmanager
def watch_passes(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` after every pass that ends in the block, in any thread."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# -- texts in a folder -----------------------------------------------------------------------------


class PassDump:
    """Writes NNN-stage-pass.txt after every pass, and passes.tsv with a line for each."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.n_written = 0
        self._lock = Lock()  # two threads may compile at the same time

    def __call__(self, record: PassRecord, text: Callable[[], str]) -> None:
        with self._lock:
            self._write(record, text)

    def _write(self, record: PassRecord, text: Callable[[], str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.n_written += 1
        name = re.sub(r"[^\w.]+", "-", f"{record.stage}-{record.name}")
        written = text()
        if written:
            path = self.folder / f"{self.n_written:03}-{name}.txt"
            write_text(path, written if written.endswith("\n") else written + "\n")
        table = self.folder / "passes.tsv"
        if self.n_written == 1:
            write_text(table, "number\tstage\tpass\tseconds\tpeak_growth_bytes\n")
        with table.open("a", encoding="utf-8") as file:
            file.write(
                f"{self.n_written}\t{record.stage}\t{record.name}"
                f"\t{record.seconds:.6f}\t{record.n_peak_bytes}\n"
            )


@contextmanager
def dump_passes(folder: str) -> Iterator[None]:
    """Write the text of every pass that this thread runs in the block into a folder."""
    with watch_passes(_dump_into(folder)):
        yield


@cache
def _dump_into(folder: str) -> PassDump:
    return PassDump(Path(folder))


def _dump_from_environment() -> PassDump | None:
    folder = os.environ.get(DUMP_VARIABLE, "")
    return _dump_into(folder) if folder else None


# -- a table for terminals -------------------------------------------------------------------------


class PassTable:
    """A watcher that keeps records; `str` of it is a table."""

    def __init__(self) -> None:
        self.records: list[PassRecord] = []

    def __call__(self, record: PassRecord, text: Callable[[], str]) -> None:
        del text  # times only
        self.records.append(record)

    def __str__(self) -> str:
        rows = [("stage", "pass", "seconds", "peak grew by")]
        rows += [
            (r.stage, r.name, f"{r.seconds:.3f}", f"{r.n_peak_bytes / 2**20:.1f} MiB")
            for r in self.records
        ]
        total = sum(r.seconds for r in self.records)
        rows.append(("", "all passes", f"{total:.3f}", ""))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  "
            f"{row[3]:>{widths[3]}}".rstrip()
            for row in rows
        )
