"""Reports that an engine's options ask for: after the first run, and when the engine is done."""

import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tremula.base.late import vision
from tremula.base.options import Options

if TYPE_CHECKING:  # they load slowly, and a front end asks this module at its start
    from tremula.compiler.executable.executable import Executable
    from tremula.runtime.clock import Clock

# -- what was run, and when: a report tells runs apart ---------------------------------------------


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a program. `executed` int64[n_steps] says how often each step ran in it."""

    program: int
    name: str
    executed: np.ndarray
    cycles_from: int
    cycles_to: int
    host_start_us: int
    host_end_us: int


@dataclass(slots=True)
class RunLog:
    """The first `most` runs in full; of all others, that there were some."""

    most: int
    runs: list[RunRecord] = field(default_factory=list)
    n_runs: int = 0

    @contextmanager
    def recording(self, clock: "Clock", program: int, name: str) -> Iterator[None]:
        """Record what happens in the block as one run."""
        self.n_runs += 1
        if len(self.runs) >= self.most:
            yield
            return
        before = clock.profiled()
        start_us = time.time_ns() // 1000
        yield
        end_us = time.time_ns() // 1000
        after = clock.profiled()
        since, until = (int(seen.cycles_of_chip.max()) for seen in (before, after))
        ran = after.executed - before.executed
        self.runs.append(RunRecord(program, name, ran, since, until, start_us, end_us))


# -- reports ---------------------------------------------------------------------------------------

_SWITCHES = (
    "autoReport.all", "autoReport.outputGraphProfile", "autoReport.outputExecutionProfile",
)  # fmt: skip
_n_engines: dict[Path, int] = {}  # that write to a folder


class AutoReport:
    """What to write and where. It holds no reference to the engine, whose end it waits for."""

    def __init__(self, folder: Path, most_runs: int):
        self.folder, self.most_runs = folder, most_runs
        self.executable: Executable | None = None
        self.clock: Clock | None = None
        self.log = RunLog(most_runs)
        self.n_written = 0  # runs that the file knows of

    def watch(self, engine: object, executable: "Executable", clock: "Clock") -> None:
        """From a load on: the engine's clock, and its end, however it comes."""
        if self.clock is None:
            weakref.finalize(engine, self.finish)
        self.executable, self.clock = executable, clock
        self.log, self.n_written = RunLog(self.most_runs), 0

    @contextmanager
    def run(self, program: int) -> Iterator[None]:
        assert self.executable is not None, "an engine is loaded before it runs"
        assert self.clock is not None, "and has a clock then"
        with self.log.recording(self.clock, program, self.executable.names[program]):
            yield
        if self.log.n_runs == 1:
            self.finish()

    def forget_runs(self) -> None:
        """From a reset of profiling on, runs are counted anew."""
        self.log, self.n_written = RunLog(self.most_runs), 0

    def finish(self) -> None:
        """Write, if something ran since it was last written."""
        if self.executable is not None and self.log.n_runs > self.n_written:
            self.n_written = self.log.n_runs
            self.write(self.executable, self.clock)

    def write(self, executable: "Executable", clock: "Clock | None") -> None:
        execution = None if clock is None else clock.execution()
        vision("report.write").write_report(
            self.folder,
            executable,
            execution,
            runs=self.log.runs,
            extra={"n_runs": self.log.n_runs},
        )


def auto_report(options: Options) -> AutoReport | None:
    """What the options ask for; usually None."""
    folder = report_folder(options)
    if folder is None:
        return None
    _n_engines[folder] = number = _n_engines.get(folder, 0) + 1
    folder = folder if number == 1 else folder / str(number)
    return AutoReport(folder, options.whole("autoReport.executionProfileProgramRunCount"))


def report_folder(options: Options) -> Path | None:
    """Where reports go; None if no option asks for any."""
    if not any(options.flag(name) for name in _SWITCHES):
        return None
    return Path(options.text("autoReport.directory")).expanduser().resolve()
