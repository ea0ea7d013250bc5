"""Working in tables: widths, columns, CSV; addresses, and reports that are written again."""

import csv
import shutil

import pytest

from tests.vision.page.checks import whole
from tests.vision.serving import serving
from tremula.vision.analysis.operations import operation_columns
from tremula.vision.report.reader import open_report

pytestmark = pytest.mark.slow
_CARD = ".card:has(h2:text-is('Operations'))"
# Numbers wider than their cell, in any table of the view.
_CUT = """[...document.querySelectorAll(".rows .cell:not(.text), .head button")].filter((cell) =>
    cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"""


def width_of(page, column):
    code = f"document.querySelectorAll('.head .cell')[{column}].offsetWidth"
    return page.evaluate(code=code)


def test_columns(page, small_report, tmp_path):
    """No number is cut; columns are dragged, fitted, hidden, remembered and saved as CSV."""
    for view in ("memory", "liveness", "operations", "execution", "tree"):
        page.show(hash=f"#/{view}?tile=3&step=2")
        assert page.evaluate(code=_CUT) == []
    page.show(hash="#/operations")
    assert width_of(page, 0) >= 220
    before = width_of(page, 1)
    page.drag(selector=f"{_CARD} .head .cell:nth-child(2) .grip", dx=70)
    assert abs(width_of(page, 1) - before - 70) <= 2
    page.dblclick(selector=f"{_CARD} .head .cell:nth-child(2) .grip")
    assert width_of(page, 1) <= before + 4
    page.focus(selector=f"{_CARD} .head .cell[aria-sort='descending'] button")
    page.press(key="Shift+ArrowRight")
    page.press(key="ArrowRight")
    page.press(key="Enter")
    titles = page.texts(selector=f"{_CARD} .head .cell")
    assert [title for title in titles if "Share" in title]
    share = f"{_CARD} .head .cell:nth-child(3)"
    assert page.attribute(selector=share, name="aria-sort") == "descending"
    page.click(selector=f"{_CARD} [aria-label='Columns of Operations']")
    page.click(selector=".menu label:has(span:text-is('Vertices')) input")
    page.click(selector=".menu label:has(span:text-is('Flops')) input")
    page.press(key="Escape")
    titles = page.texts(selector=f"{_CARD} .head .cell")
    assert "Vertices" in titles
    assert "Flops" not in titles
    page.show(hash="#/summary")
    page.show(hash="#/operations")
    assert page.texts(selector=f"{_CARD} .head .cell") == titles
    page.download(
        selector=f"{_CARD} [aria-label='Save Operations as CSV']", path=str(tmp_path / "t")
    )
    with (tmp_path / "t").open(newline="") as file:
        saved = list(csv.DictReader(file))
    with open_report(small_report) as reader:
        wanted = operation_columns(reader)
    assert {row["Operation"]: int(row["Cycles"]) for row in saved} == dict(
        zip(wanted["name"], wanted["cycles"].tolist(), strict=True)
    )


def test_addresses_in_the_same_view(page):
    """A zoom pasted in the same view is shown; going back while zooming keeps both addresses."""
    page.show(hash="#/execution")
    everything = whole(page.text(selector=".figure b"))
    page.show(hash="#/execution?from=0&to=20000")
    assert whole(page.text(selector=".figure b")) < everything
    page.show(hash="#/memory")
    page.evaluate(code="document.querySelector(\".rail a[href*='#/execution']\").click()")
    page.settle()
    page.focus(selector=".timeline canvas")
    page.press(key="+")
    page.evaluate(code="history.back()")
    page.settle()
    assert page.hash() == "#/memory"


def test_a_newer_report_is_offered(browser, small_report, larger_report, tmp_path):
    """The page says that its report was written again, shows it when asked, or by itself."""
    path = tmp_path / "profile.pop"
    for is_watching in (False, True):
        shutil.copy(small_report / "profile.pop", path)
        with serving(path, is_watching=is_watching) as server:
            browser.open(url=server.url)
            browser.show(hash="#/summary?tile=3")
            before = browser.text(selector=".figure b")
            shutil.copy(larger_report / "profile.pop", tmp_path / "new")
            (tmp_path / "new").replace(path)
            if not is_watching:
                browser.await_(selector=".banner:not([hidden]) .plain")
                assert tmp_path.name in browser.text(selector=".banner")
                assert browser.text(selector=".figure b") == before
                browser.click(selector=".banner .plain")
            browser.await_(selector=f".figure b:not(:text-is('{before}'))")
            assert browser.hash() == "#/summary?tile=3"
            assert browser.problems() == []
