"""Cycles and memory of a session's tile program: as a number, as text, and as report files."""

import os
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tremula.frontends.popart.exceptions import popart_errors, popart_exception
from tremula.frontends.popart.sessions.engine import SessionEngine

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.ir.run.performance import CallTiming
    from tremula.vision.pva.report import Report


class SessionReports:
    """What the tile program of a session costs."""

    def __init__(self, engine: SessionEngine):
        self._engine, self._setup = engine, engine.setup

    def cycles(self) -> int:
        """Cycles of one step; raises if the options do not count them."""
        return self._timing().total_cycles

    def cycle_interval(self) -> tuple[int, int]:
        """Cycles of one step on real hardware, nine times in ten."""
        return self._timing().cycle_interval

    def _timing(self) -> "CallTiming":
        if not self._setup.options.instrumentWithHardwareCycleCounter:
            raise popart_exception(
                "SessionOption 'instrumentWithHardwareCycleCounter' must be set to True in order"
                " to measure cycle count"
            )
        program = self._engine.program.program
        with popart_errors():
            return program.timing()

    def summary(self) -> str:
        """Memory and cycles as text."""
        from tremula.compiler.report.profile_summary import profile_summary  # slow to import

        with popart_errors():
            return profile_summary(self._engine.program.program.report())

    def open(self) -> "Report":
        """The report as `pva` opens it, saved in the folder of autoReport if there is one."""
        from tremula.vision.pva.report import openReport  # slow to import

        folder = self._setup.options.engineOptions.get("autoReport.directory")
        with popart_errors():
            return openReport(self.save(folder or self._folder.name))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the report for the analyser; the path of its file."""
        with popart_errors():
            return self._engine.program.program.save_report(folder, self._setup.name)

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory:
        """Where reports are saved without an option; it is deleted with the session."""
        return tempfile.TemporaryDirectory()
