"""pytest fixture `tremula_budget`: a test fails if an engine or a report exceeds a budget."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def tremula_budget(tmp_path: Path) -> Callable[..., None]:
    """`tremula_budget(engine_or_report, total_cycles=…)`, or a mapping, or the path of a TOML file.

    An engine must have run, or the budget be about memory alone.
    """

    def check(subject: object, budget: object = None, **limits: float) -> None:
        # Every pytest run loads this plugin: nothing of Tremula is imported before a test uses it.
        from tremula.vision.analysis.budget import check_budget, load_budget

        if isinstance(budget, str | os.PathLike):
            budget = load_budget(budget)
        wanted = {**(budget or {}), **limits}  # pyright: ignore[reportGeneralTypeIssues]
        report = subject
        if not isinstance(subject, str | os.PathLike):
            report = _written(subject, tmp_path)
        over = [v for v in check_budget(report, wanted) if not v.holds]  # pyright: ignore[reportArgumentType]
        if over:
            pytest.fail("\n".join(map(str, over)), pytrace=False)

    return check


def _written(subject: object, folder: Path) -> object:
    """The report of an engine, or the open one that was given."""
    from tremula.base.errors import InvalidOption
    from tremula.runtime.engine import Engine
    from tremula.vision.report.reader import ReportReader
    from tremula.vision.report.write import report_of_engine

    if isinstance(subject, Engine):
        return report_of_engine(subject, folder / "budget.pop")
    if not isinstance(subject, ReportReader):
        raise InvalidOption(
            f"tremula_budget takes an engine, a report or its path, got {type(subject).__name__}.",
            hint="give a PopTorch model's folder: Options().enableProfiling(dir) names it",
        )
    return subject
