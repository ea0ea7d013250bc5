"""Reports that many tests of PopVision read, each made once, and servers of them."""

import pytest

from tests.vision import demo
from tests.vision.programs import summing_engine
from tests.vision.serving import serving
from tremula.vision.pytest_plugin import tremula_budget
from tremula.vision.report.reader import open_report
from tremula.vision.report.write import report_of_engine

__all__ = ["tremula_budget"]  # installing Tremula provides this fixture


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


@pytest.fixture(scope="session")
def small_report(made_once):
    """A small network, trained with a system trace."""
    return made_once("small", lambda folder: demo.train_small_network(folder, with_trace=True))


@pytest.fixture(scope="session")
def larger_report(made_once):
    return made_once("larger", lambda folder: demo.train_small_network(folder, 80))


@pytest.fixture(scope="session")
def long_report(made_once):
    """10⁶ cells of steps × tiles."""
    return made_once("long", lambda folder: demo.long_report(folder, 1_000_000))


@pytest.fixture
def reader(small_report):
    with open_report(small_report) as opened:
        yield opened


@pytest.fixture(scope="session")
def small_server(small_report):
    with serving(small_report) as server:
        yield server
