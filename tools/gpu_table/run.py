"""Runs cases as processes: as many at a time as jobs and memory allow, each within its limit."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks import read_json
from benchmarks.gpu_programs import NOT_COMPILED, say
from tools.gpu_table.cases import Case
from tools.gpu_table.record import MEASURED, RUNNING, Record, Row
from tools.gpu_table.turns import Turns, signal_tree

_TICK_S = 0.2
_N_LAST_LINES = 40  # of a log that are shown if its case fails
Command = Callable[[Case, Path], list[str]]


@dataclass(frozen=True)
class Limits:
    """What a run may use."""

    n_jobs: int
    gib: float  # of GPU memory, by the estimates of cases
    seconds: float  # of the run


@dataclass
class _Process:
    """A case that runs."""

    number: int
    case: Case
    row: Row
    process: "subprocess.Popen[bytes]"
    began: float
    folder: Path

    @property
    def result(self) -> Path:
        return self.folder / "figures.json"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"


class Run:
    """A run: what waits, what runs, and the record."""

    def __init__(self, cases: Sequence[Case], record: Record, limits: Limits, folder: Path):
        self._waiting = [(number, case) for number, case in enumerate(cases)]
        self._rows = {row.name: row for row in record.rows}
        self._record, self._limits, self._folder = record, limits, folder
        self._running: list[_Process] = []
        self._turns = Turns()
        self._began = time.monotonic()

    def run(self, command: Command = Case.command) -> None:
        """Until all cases have ended, or the time is up; the record is written as it goes."""
        try:
            while self._waiting or self._running:
                self._start_some(command)
                time.sleep(_TICK_S)
                for one in list(self._running):
                    self._look_at(one)
                if self._elapsed_s() > self._limits.seconds:
                    break
        finally:
            for one in list(self._running):
                self._end(one, "stopped at the end of the run's time")
            self._turns.close()
            self._record.write(self._folder)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    # -- starting --------------------------------------------------------------------------------

    def _start_some(self, command: Command) -> None:
        """Start cases in their order; one that needs more memory than is left is passed over."""
        with self._turns.no_turn() as may_start:
            for number, case in list(self._waiting) if may_start else ():
                if self._fits(case):
                    self._waiting.remove((number, case))
                    self._start(number, case, command)

    def _fits(self, case: Case) -> bool:
        if not self._running:
            return True
        gib = sum(one.case.section.gib for one in self._running) + case.section.gib
        return len(self._running) < self._limits.n_jobs and gib <= self._limits.gib

    def _start(self, number: int, case: Case, command: Command) -> None:
        folder = self._folder / "cases" / case.name.replace(":", "-")
        folder.mkdir(parents=True, exist_ok=True)
        result, log = folder / "figures.json", folder / "log.txt"
        result.unlink(missing_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(case, result),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self._turns.variables(number)},
                start_new_session=True,  # an interrupt from the keyboard is for this process
            )
        self._turns.add(number, process.pid)
        row = self._rows[case.name]
        row.status = RUNNING
        self._running.append(_Process(number, case, row, process, time.monotonic(), folder))
        self._say(f"{case.name} …")

    # -- looking ---------------------------------------------------------------------------------

    def _look_at(self, one: _Process) -> None:
        one.row.seconds = time.monotonic() - one.began - self._turns.stopped_s(one.number)
        code, limit_s = one.process.poll(), one.case.section.limit_s
        if code is not None:
            self._end(one, MEASURED if code == 0 else _why(code))
        elif one.row.seconds > limit_s:
            self._end(one, f"stopped after {limit_s:g} s")
        elif self._take_figures(one):
            self._record.write(self._folder)

    def _take_figures(self, one: _Process) -> bool:
        """Figures that the process has written since; True if there are any."""
        figures = []
        with suppress(OSError, ValueError, TypeError):
            figures = read_json(one.result)
        new = figures[len(one.row.figures) :]
        for figure in new:
            self._say(f"{figure.name} {figure.value:.4g} {figure.unit} ({figure.note})")
        one.row.figures += new
        return bool(new)

    def _end(self, one: _Process, status: str) -> None:
        """Take what a case has measured; if it runs, end it and what it has started."""
        if one.process.poll() is None:
            signal_tree(one.process.pid, signal.SIGKILL)
            one.process.wait()
        self._turns.remove(one.number)
        self._running.remove(one)
        self._take_figures(one)
        text = one.log.read_text(encoding="utf-8", errors="replace")
        one.row.status = status
        one.row.remarks = [line for line in text.splitlines() if line.startswith(NOT_COMPILED)]
        with (self._folder / "log.txt").open("a", encoding="utf-8") as log:
            log.write(f"==== {one.case.name}: {status}, {one.row.seconds:.0f} s\n{text}\n")
        self._say(f"{one.case.name}: {status}, {one.row.seconds:.0f} s")
        if status != MEASURED:
            for line in text.splitlines()[-_N_LAST_LINES:]:
                say(f"    {line}")
        self._record.write(self._folder)

    def _say(self, text: str) -> None:
        say(f"[{self._elapsed_s():6.1f} s] {text}")


def _why(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
