"""The exported file, opened from a folder without a network, says what the served page says."""

import pytest

from tests.vision.page.test_views import VIEWS
from tremula.vision.page_data.fetch import PageData
from tremula.vision.report.reader import open_report
from tremula.vision.serve.export import export_page

pytestmark = pytest.mark.slow


def texts_of_views(browser):
    result = {}
    for view in VIEWS:
        browser.show(hash=f"#/{view}?tile=3&step=2")
        # Without a server there are fewer controls, not fewer results.
        cards = ".results .card" if view == "whatif" else ".stage .card"
        result[view] = browser.texts(selector=cards)
        assert result[view]
    return result


def test_export_says_the_same(browser, small_report, small_server, tmp_path):
    """All views have the same words and numbers, from file:// and offline."""
    with open_report(small_report) as reader:
        export_page(PageData([reader]), tmp_path / "page.html")
    browser.open(url=small_server.url)
    served = texts_of_views(browser)
    browser.open(url=(tmp_path / "page.html").as_uri(), offline=True)
    assert texts_of_views(browser) == served
    assert browser.problems() == []
    assert "exported" in browser.text(selector=".rail .about")
