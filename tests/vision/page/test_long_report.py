"""A report of 10⁶ cells on the page: what pva says, and never more than a screen's worth."""

import pytest

import pva
from tests.vision.page.checks import CHECKS

pytestmark = pytest.mark.slow


def test_zoom_fetches_little(browser, long_server):
    """Every zoom level of the heat map shows sharp cells from at most 300 KB."""
    browser.open(url=long_server.url, fresh=True)
    browser.show(hash="#/execution")
    for _ in range(6):
        browser.fetched(reset=True)
        browser.focus(selector=".heat canvas[tabindex]")
        browser.press(key="+")
        browser.press(key="+")
        browser.settle()
        assert browser.attribute(selector=".heat", name="data-complete") == "true"
        assert browser.fetched() <= 300_000
    browser.press(key="]")
    browser.press(key="ArrowDown")
    browser.settle()
    assert browser.attribute(selector=".heat", name="data-complete") == "true"
    assert browser.problems() == []


@pytest.mark.parametrize("view", CHECKS)
def test_view(browser, long_server, long_report, view, tmp_path):
    """Each view says what pva says, and its tables hold only the rows in sight."""
    browser.open(url=long_server.url)
    CHECKS[view](browser, pva.openReport(long_report))
    assert browser.count(selector=".failure") == 0
    assert browser.count(selector=".rows .row") < 200
    browser.screenshot(path=str(tmp_path / f"{view}.png"))
    assert browser.problems() == []
