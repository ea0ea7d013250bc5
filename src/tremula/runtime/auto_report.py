"""Reports that an engine's options ask for: after the first run, and when the engine is done."""

import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from tremula.base.lazy import vision
from tremula.base.options import OptionValues

if TYPE_CHECKING:  # they load slowly, and a front end asks this module at its start
    from tremula.compiler.executable.executable import Executable
    from tremula.runtime.clock import Clock

_SWITCHES = (
    "autoReport.all", "autoReport.outputGraphProfile", "autoReport.outputExecutionProfile",
)  # fmt: skip
_n_reports: dict[Path, int] = {}  # that were requested in a folder


class AutoReport:
    """What to write and where. It holds no reference to the engine, whose end it waits for."""

    def __init__(self, folder: Path, most_runs: int):
        self.folder, self.most_runs = folder, most_runs
        self.executable: Executable | None = None
        self.clock: Clock | None = None
        self.n_written = 0  # runs that the file knows of

    def watch(self, engine: object, executable: "Executable", clock: "Clock") -> None:
        """From a load on: the engine's clock, and its end, however it comes."""
        if self.clock is None:
            weakref.finalize(engine, self.finish)
        self.executable, self.clock, self.n_written = executable, clock, 0
        clock.recorder.n_apart = self.most_runs

    @property
    def n_runs(self) -> int:
        return 0 if self.clock is None else self.clock.recorder.n_runs

    def after_run(self) -> None:
        """Write after the first run, so that a program that never ends leaves something."""
        if self.n_runs == 1:
            self.finish()

    def finish(self) -> None:
        """Write, if something ran since it was last written."""
        if self.executable is not None and self.n_runs not in (0, self.n_written):
            self.n_written = self.n_runs
            self.write(self.executable, self.clock)

    def write(self, executable: "Executable", clock: "Clock | None") -> None:
        execution = None if clock is None else clock.execution()
        extra = {"n_runs": self.n_runs}
        vision("report.write").write_report(self.folder, executable, execution, extra=extra)


def auto_report(options: OptionValues) -> AutoReport | None:
    """What the options ask for; usually None."""
    folder = report_folder(options)
    if folder is None:
        return None
    folder = numbered_folder(folder)
    return AutoReport(folder, options.whole("autoReport.executionProfileProgramRunCount"))


def numbered_folder(folder: Path) -> Path:
    """A folder for one more report: itself the first time, then numbered ones in it."""
    _n_reports[folder] = number = _n_reports.get(folder, 0) + 1
    return folder if number == 1 else folder / str(number)


def report_folder(options: OptionValues) -> Path | None:
    """Where reports go; None if no option asks for any."""
    if not any(options.flag(name) for name in _SWITCHES):
        return None
    return Path(options.text("autoReport.directory")).expanduser().resolve()
