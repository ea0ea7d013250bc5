"""Fixtures of report tests: one report that many tests read."""

import pytest

from tests.vision.programs import summing_engine
from tremula.vision.pytest_plugin import tremula_budget
from tremula.vision.report.producers import report_of_engine
from tremula.vision.report.reader import open_report

__all__ = ["tremula_budget"]  # a fixture that installing Tremula brings by itself


@pytest.fixture(scope="session")
def engine():
    """An engine that has run once."""
    made = summing_engine().load()
    made.run()
    return made


@pytest.fixture(scope="session")
def report_file(engine, tmp_path_factory):
    return report_of_engine(engine, tmp_path_factory.mktemp("report"))


@pytest.fixture
def report(report_file):
    with open_report(report_file) as reader:
        yield reader
