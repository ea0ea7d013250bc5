"""Fixtures of report tests: a code cache of their own, one report that many tests read."""

import pytest

from tests.vision.programs import summing_engine
from tremula.vision.producers import report_of_engine
from tremula.vision.pytest_plugin import tremula_budget
from tremula.vision.report_reader import open_report

__all__ = ["tremula_budget"]  # a fixture that installing Tremula brings by itself


@pytest.fixture(scope="session", autouse=True)
def code_cache(tmp_path_factory):
    """Neither use nor leave anything in the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("TREMULA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


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
