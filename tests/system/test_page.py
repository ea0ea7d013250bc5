"""The fleet's page, in a real browser."""

import time

import pytest

from tests.system.conftest import ADMIN
from tests.vision.browser import Browser, missing
from tremula.system.control.partitions import PartitionRequest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    why = missing()
    if why:
        pytest.skip(f"no browser: {why}")
    made = Browser()
    yield made
    made.close()


def wait_for(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_the_page_shows_the_fleet_and_follows_it(browser, controller, admin):
    """Chips stand in racks, coloured by partition; figures, tables and faults follow."""
    controller.add_partition(ADMIN, PartitionRequest("red", 4))
    controller.add_partition(ADMIN, PartitionRequest("blue", 2))
    about = {"gcd": 0, "pid": 4711, "host": "elsewhere", "user": "ann", "command": "<b>train</b>"}
    controller.add_lease(ADMIN, {"partition": "red", "ipus": [0, 1, 2, 3], **about})
    browser.open(url=f"http://127.0.0.1:{admin.port}/?key={admin.key}", fresh=True)
    assert browser.count(selector=".chip") == 16
    assert browser.count(selector=".chip[data-partition='red'].held") == 4
    assert browser.count(selector=".chip.free") == 10
    fills = {
        name: browser.attribute(selector=f".chip[data-partition='{name}']", name="fill")
        for name in ("red", "blue")
    }
    assert fills["red"] != fills["blue"]
    assert browser.texts(selector=".figure b")[:2] == ["6 of 16", "1"]
    cells = browser.texts(selector=".programs td")
    assert cells == ["4711", "ann", "red", "4", "<b>train</b>"]  # a name is a text, never HTML
    assert browser.count(selector=".plot svg path.line") == 3

    browser.click(selector=".partitions tbody tr:nth-child(1)")
    assert browser.count(selector=".chip.dim") == 14
    browser.choose(selector="#colour", value="watts")
    assert browser.attribute(selector=".chip", name="fill").startswith("hsl(")

    controller.add_fault(ADMIN, "parity", "cl0", 9, None)
    controller.remove_partition(ADMIN, "blue")
    wait_for(lambda: browser.count(selector=".chip.faulty") == 1)
    assert browser.attribute(selector=".chip.faulty", name="data-ipu") == "9"
    assert browser.texts(selector=".faults td")[2] == "a parity error in the memory of IPU 9"
    assert browser.texts(selector=".figure b")[0] == "4 of 16"
    assert browser.problems() == []


def test_without_a_key_the_page_says_so(browser, admin):
    """It is empty but for the reason."""
    browser.open(url=f"http://127.0.0.1:{admin.port}/", fresh=True)
    assert "no access key" in browser.text(selector=".lost")
    assert browser.count(selector=".chip") == 0
