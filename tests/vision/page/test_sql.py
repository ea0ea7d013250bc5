"""SQL in the page: its answers are the report's, it only reads, and an export says it cannot."""

import pytest

from tests.vision.page.checks import whole
from tremula.vision.page_data.fetch import PageData
from tremula.vision.page_data.sql import ABOUT, EXAMPLES
from tremula.vision.report.reader import open_report
from tremula.vision.serve.export import export_page

pytestmark = pytest.mark.slow


def test_sql(browser, small_server, reader):
    """Examples answer what the reader answers; a row is followed; errors say what is allowed."""
    browser.open(url=small_server.url)
    browser.show(hash="#/sql")
    assert [text.split()[0] for text in browser.texts(selector=".schema summary")] == list(ABOUT)
    for title, sql in EXAMPLES.items():
        browser.click(selector=f".query-tools button:text-is('{title}')")
        browser.settle()
        names, rows = reader.query(sql)
        assert browser.texts(selector=".head .cell") == names
        assert whole(browser.text(selector=".tools .status")) == len(rows)
        first = browser.texts(selector=".rows .row:first-child .cell")
        assert [whole(c) for c, v in zip(first, rows[0], strict=True) if isinstance(v, int)] == [
            v for v in rows[0] if isinstance(v, int)
        ]
    browser.click(selector=".query-tools button:text-is('The fullest tiles')")
    browser.settle()
    browser.click(selector=".rows .row:first-child")
    tile = int(reader.table("tiles")["including_gaps"].argmax())
    assert f"tile={tile}" in browser.hash()
    browser.fill(selector=".query", text="SELECT 7 / 2 AS half, 'a/b?c' AS text, x'00ff' AS blob")
    browser.press(key="Control+Enter")
    browser.await_(selector=".head .cell:has-text('half')")
    browser.settle()
    assert browser.texts(selector=".rows .cell") == ["3", "a/b?c", "(2 bytes)"]
    assert browser.problems() == []
    browser.fill(selector=".query", text="DELETE FROM steps")
    browser.press(key="Control+Enter")
    browser.await_(selector=".failure")
    assert "does more than read" in browser.text(selector=".failure")


def test_sql_in_an_export(browser, small_report, tmp_path):
    """An exported page says that it cannot be asked, and what to do."""
    with open_report(small_report) as opened:
        export_page(PageData([opened]), tmp_path / "page.html", most_bytes=20_000)
    browser.open(url=(tmp_path / "page.html").as_uri(), offline=True)
    browser.show(hash="#/sql")
    assert "tremula view REPORT" in browser.text(selector=".stage")
    assert browser.problems() == []
