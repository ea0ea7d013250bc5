"""Reports of engines and of programs that have not run."""

import os
from collections.abc import Mapping
from pathlib import Path

from tremula.base.errors import MissingPerfEstimate, MissingProfileData
from tremula.compiler.executable.executable import Executable
from tremula.compiler.report.report import Execution
from tremula.runtime.engine import Engine
from tremula.runtime.forecast import forecast
from tremula.vision.report.write import write_report


def report_of_engine(
    engine: Engine, path: str | os.PathLike[str], *, extra: Mapping[str, object] | None = None
) -> Path:
    """Write the report of what an engine has run so far; before `load`, of its program alone."""
    clock = getattr(engine, "clock", None)
    execution: Execution | None = None if clock is None else clock.execution()
    return write_report(path, engine.executable, execution, extra=extra)


def report_of_forecast(
    executable: Executable,
    path: str | os.PathLike[str],
    *,
    program: int | str = 0,
    extra: Mapping[str, object] | None = None,
) -> Path:
    """Write the report of one run that did not take place.

    Where data decides what runs, only what is known before goes into it: memory and single steps.
    """
    facts = dict(extra or {})
    try:
        report = forecast(executable, program)
    except (MissingPerfEstimate, MissingProfileData) as error:
        report, facts["not_foretold"] = None, error.what
    return write_report(path, executable, report, extra=facts)
