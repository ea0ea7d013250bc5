"""A report of 10⁶ cells on the page: fluent, and never more than a screen's worth fetched."""

import pytest

pytestmark = pytest.mark.slow


def test_zoom_fetches_little(browser, long_server):
    """Every zoom level of the heat map shows sharp cells from at most 300 KB."""
    browser.open(url=long_server.url)
    browser.show(hash="#/execution")
    for _ in range(6):
        browser.fetched(reset=True)
        browser.focus(selector=".heat canvas[tabindex]")
        browser.press(key="+")
        browser.press(key="+")
        browser.wait(ms=400)
        browser.settle()
        browser.wait(ms=150)
        assert browser.attribute(selector=".heat", name="data-complete") == "true"
        assert browser.fetched() <= 300_000
    browser.press(key="]")
    browser.press(key="ArrowDown")
    browser.wait(ms=400)
    assert browser.attribute(selector=".heat", name="data-complete") == "true"
    assert browser.problems() == []


def test_all_views(browser, long_server):
    """All views paint; tables of hundreds of steps hold only the rows in sight."""
    browser.open(url=long_server.url)
    for view in ("summary", "memory", "liveness", "tree", "operations", "execution"):
        browser.show(hash=f"#/{view}")
        assert browser.count(selector=".failure") == 0
        assert browser.count(selector=".rows .row") < 200
    assert browser.problems() == []
