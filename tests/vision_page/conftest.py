"""Fixtures of the page's tests: reports, servers of them, one browser."""

import os
import threading
from contextlib import contextmanager

import pytest

from tests.vision_page import demo
from tests.vision_page.mnist_run import mnist_reports
from tremula.bench.browser import Browser, missing
from tremula.vision.page_data.fetch import PageData
from tremula.vision.report.reader import open_report
from tremula.vision.serve.server import PageServer


@pytest.fixture(scope="session")
def small_report(tmp_path_factory):
    return demo.train_small_network(tmp_path_factory.mktemp("small"), with_trace=True)


@pytest.fixture(scope="session")
def larger_report(tmp_path_factory):
    return demo.train_small_network(tmp_path_factory.mktemp("larger"), 80)


@pytest.fixture(scope="session")
def long_report(tmp_path_factory):
    """10⁶ cells of steps × tiles."""
    return demo.long_report(tmp_path_factory.mktemp("long"), 1_000_000)


@pytest.fixture(scope="session")
def mnist_folder(tmp_path_factory):
    """Where the MNIST example left its reports `training` and `inference`, and its trace."""
    base = tmp_path_factory.getbasetemp()  # of a worker: inside that of the run
    return mnist_reports(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@contextmanager
def serving(*reports):
    """A server of reports, while the block runs."""
    readers = [open_report(report) for report in reports]
    server = PageServer(PageData(readers))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        for reader in readers:
            reader.close()


@pytest.fixture(scope="session")
def small_server(small_report):
    with serving(small_report) as server:
        yield server


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
    """The page of the small report; nothing may go wrong in it."""
    browser.open(url=small_server.url)
    yield browser
    assert browser.problems() == []


@pytest.fixture
def reader(small_report):
    with open_report(small_report) as opened:
        yield opened
