"""Fixtures of the page's tests: the MNIST run, servers, one browser."""

import pytest

from tests.vision.browser import Browser, missing
from tests.vision.page.mnist_run import run_mnist
from tests.vision.page.pipeline_run import run_pipeline
from tests.vision.serving import serving


@pytest.fixture(scope="session")
def mnist_folder(made_once):
    """Where the MNIST example left its reports `training` and `inference`, and its trace."""
    return made_once("mnist_reports", run_mnist)


@pytest.fixture(scope="session")
def pipeline_folder(made_once):
    """The report and trace of a small pipeline over four chips."""
    return made_once("pipeline_report", run_pipeline)


@pytest.fixture(scope="session")
def both_server(small_report, larger_report):
    with serving(small_report, larger_report) as server:
        yield server


@pytest.fixture(scope="session")
def long_server(long_report):
    with serving(long_report) as server:
        yield server


@pytest.fixture(scope="session")
def browser():
    why = missing()
    if why:
        pytest.skip(f"no browser: {why}")
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def page(browser, small_server):
    """The page of the small report; the browser must not report any problem."""
    browser.open(url=small_server.url)
    yield browser
    assert browser.problems() == []
