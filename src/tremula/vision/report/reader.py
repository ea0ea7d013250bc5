"""Reads report files, lazily and read-only; everything else asks this."""

import os
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tremula.base.errors import FileLoadError, MissingProfileData
from tremula.vision.report.cycles import ReportCycles
from tremula.vision.report.memory import ReportMemory
from tremula.vision.report.packing import inflate

if TYPE_CHECKING:
    from tremula.compiler.executable.executable import Executable


def open_report(path: str | os.PathLike[str]) -> "ReportReader":
    """A reader of a report file, or of the `profile.pop` in a folder."""
    return ReportReader(path)


class ReportReader(ReportCycles, ReportMemory):
    """One report: its tables, its cycles, its memory and its tile program."""

    def __repr__(self) -> str:
        ran = f"{self.info['total_cycles']:,} cycles" if self.has_run else "not run"
        chip = self.target.get("chip", "?")
        return f"ReportReader({self.path.name}: {chip}, {self.n_steps:,} steps, {ran})"

    def _repr_html_(self) -> str:
        from tremula.vision.analysis.notebook import report_html

        return report_html(self)

    @cached_property
    def kept_executable(self) -> "Executable":
        """The tile program, for looking things up: loaded once."""
        return self.executable()

    def executable(self) -> "Executable":
        """The tile program, for costing it again."""
        from tremula.compiler.executable.executable import Executable

        rows = self.execute("SELECT n_bytes, data FROM executable")
        if not rows:
            raise MissingProfileData(
                f"report {str(self.path)!r} does not hold its tile program.",
                hint="write the report with keeps_executable=True, or give the script instead",
            )
        n_bytes, data = rows[0]
        if type(n_bytes) is not int or n_bytes < 0:
            raise self.damaged(f"has a tile program of {n_bytes!r} bytes")
        content = inflate(data, n_bytes, "the tile program")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "executable")
            path.write_bytes(content)
            try:
                return Executable.load(str(path))
            except FileLoadError as error:
                why = error.what.replace(repr(str(path)), "its tile program")
                raise FileLoadError(
                    f"report {str(self.path)!r}: {why}",
                    hint="write the report again with this version",
                ) from error
