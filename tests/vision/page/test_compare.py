"""Two reports on one page: side by side, as differences, and with causes in words."""

import re

import pytest

from tests.vision.page.checks import whole
from tests.vision.page.test_views import VIEWS
from tests.vision.serving import serving
from tremula.vision.analysis.compare import compare
from tremula.vision.report.reader import open_report

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser, both_server):
    browser.open(url=both_server.url)
    yield browser
    assert browser.problems() == []


def test_compare_view(page, small_report, larger_report):
    """Totals and causes are those of `tremula compare`."""
    page.show(hash="#/compare")
    with open_report(small_report) as before, open_report(larger_report) as after:
        wanted = compare(before, after)
    shown = page.texts(selector=".causes li")
    assert len(shown) == len(wanted["causes"])
    assert shown[0].replace("−", "-").split()[0] == wanted["causes"][0].split()[0]
    total = wanted["totals"]["total_cycles"]
    assert f"{total['before']:,} → {total['after']:,}" in page.text(selector=".figure span")
    for group in ("Operation", "Phase", "Module"):
        page.click(selector=f".choice button:text-is('{group}')")
        page.settle()
        check_fall(page.texts(selector=".fall")[0].split("\n"), total)


def check_fall(lines, total):
    """A total, signed causes, and the other total: the causes add up to the difference."""
    numbers = [line for line in lines if re.fullmatch(r"[+−]?[\d,]+", line)]
    ends, causes = (numbers[0], numbers[-1]), numbers[1:-1]
    assert [whole(end) for end in ends] == [total["before"], total["after"]]
    signed = [(-1 if cause[0] == "−" else 1) * whole(cause) for cause in causes]
    assert sum(signed) == total["difference"]


@pytest.mark.parametrize("mode", ["beside", "difference"])
def test_every_view_takes_two_reports(page, mode):
    """All views show both reports, beside each other or as differences."""
    for view in VIEWS:
        page.show(hash=f"#/{view}?mode={mode}")
        assert page.count(selector=".view") == (2 if mode == "beside" else 1)
        assert page.count(selector=".failure") == 0


def test_differences_of_operations(page, small_report, larger_report):
    """The difference of an operation's cycles is B's minus A's."""
    page.show(hash="#/operations?mode=difference")
    rows = page.texts(selector=".rows .row")
    with open_report(small_report) as before, open_report(larger_report) as after:
        wanted = {r["name"]: r["cycles"] for r in compare(before, after)["operations"]}
    cells = [row.split("\n") for row in rows]
    checked = 0
    for name, _, change, *_ in cells:
        if name in wanted and change[0] in "+−":
            assert whole(change) == abs(wanted[name]["difference"])
            checked += 1
    assert checked >= 2


def test_differences_of_tiles_at_a_step(page, small_report, larger_report):
    """On the chip, a step's compute cycles are B's minus A's, for the step of the same name."""
    with open_report(small_report) as before, open_report(larger_report) as after:
        paths = after.table("steps")["path"]
        step = max(
            (i for i, path in enumerate(before.table("steps")["path"]) if path in paths),
            key=lambda i: before.table("steps")["compute"][i],
        )
        place = paths.index(before.table("steps")["path"][step])
        change = after.step_cycles(place).compute - before.step_cycles(step).compute
    page.show(hash=f"#/chip?mode=difference&show=compute&step={step}")
    told = re.search(
        r"([\d,]+) of [\d,]+ tiles differ, most (\S+)", page.text(selector=".step-note")
    )
    assert whole(told[1]) == (change != 0).sum() > 0
    assert whole(told[2]) == abs(change).max()


def test_any_two_of_many(browser, small_report, larger_report):
    """Of three reports any two are chosen; heat maps and tables then show their difference."""
    with serving(small_report, larger_report, small_report) as server:
        browser.open(url=server.url)
        browser.show(hash="#/liveness?mode=difference")
        assert browser.count(selector="h2:text-is('Temporary bytes, every tile, B − A')") == 1
        browser.choose(selector="select[aria-label='Report B']", value="2")
        browser.settle()
        assert "with=2" in browser.hash()
        largest = browser.text(selector=".heat-legend li:last-child")
        assert "full colour: 1 B." in largest  # the third is the first again
        browser.show(hash="#/execution?mode=difference&report=1&with=2")
        assert browser.count(selector="h2:text-is('Every tile, B − A')") == 1
        assert browser.attribute(selector=".heat", name="data-complete") == "true"
        browser.show(hash="#/compare?report=2&with=1")
        with open_report(small_report) as before, open_report(larger_report) as after:
            total = compare(before, after)["totals"]["total_cycles"]
        assert f"{total['before']:,} → {total['after']:,}" in browser.text(selector=".figure span")
        assert browser.problems() == []


def test_one_of_two_reports(page):
    """The names in the bar choose a report."""
    page.show(hash="#/summary")
    first = page.text(selector=".figure b")
    page.click(selector=".report:nth-child(2)")
    page.settle()
    assert "report=1" in page.hash()
    assert page.text(selector=".figure b") != first
