"""Advice leads to what it is about; + goes to what is selected; the graph and differences."""

import re

import pytest

from tests.vision.page.checks import whole
from tests.vision.serving import serving
from tremula.vision.analysis.insights import insights
from tremula.vision.report.reader import open_report

pytestmark = pytest.mark.slow
# Whether pixels of the timeline are redder or bluer than grey.
_COLOURS = """(() => {
  const canvas = document.querySelector(".timeline canvas"), pen = canvas.getContext("2d");
  const { data } = pen.getImageData(70, 24, canvas.width - 80, 60), found = new Set();
  for (let i = 0; i < data.length; i += 4) {
    const change = data[i] - data[i + 2];
    found.add(change > 4 ? "more" : change < -20 ? "less" : "");
  }
  return [...found];
})()"""


def test_show_me_zooms_selects_and_leads_back(browser, pipeline_folder):
    """Every piece of advice opens its view with its thing selected and in sight, and a way back."""
    with serving(pipeline_folder) as server, open_report(pipeline_folder) as reader:
        browser.open(url=server.url)
        total = reader.info["total_cycles"]
        for number, one in enumerate(insights(reader)):
            browser.show(hash="#/summary")
            browser.click(selector=f".insight >> nth={number} >> .go")
            browser.settle()
            assert browser.hash().startswith(f"#/{one['view']}?"), one["rule"]
            for key, value in one["select"].items():
                if key not in ("from", "to"):
                    assert f"{key}={value}" in browser.hash(), one["rule"]
            if one["view"] == "execution":
                assert whole(browser.text(selector=".figure b")) < total / 2
                browser.focus(selector=".timeline canvas")
            if one["view"] != "summary":
                browser.click(selector=".chip.back")
                browser.settle()
                assert browser.hash().startswith("#/summary")
                assert browser.count(selector=f".insight.revealed >> nth={0}") == 1
        assert browser.problems() == []


def test_plus_goes_to_the_selection(page, reader):
    """With a step selected, + shows one of its executions; without, it zooms to the middle."""
    steps = reader.table("steps")
    step = int(steps["cycles"].argmin())
    page.show(hash=f"#/execution?step={step}")
    page.press(key="+")
    page.settle()
    seen = [float(n) for n in re.findall(r"(?:from|to)=(\d+)", page.hash())]
    ran = reader.trace
    mine = [(int(a), int(b)) for a, b in zip(ran.start[ran.step == step, 0],
            ran.end[ran.step == step, 0], strict=True)]  # fmt: skip
    assert any(seen[0] <= a and b <= seen[1] for a, b in mine)
    assert seen[1] - seen[0] <= max(60, 3.1 * max(b - a for a, b in mine))
    page.show(hash="#/memory?tile=70")
    page.press(key="+")
    page.settle()
    assert page.hash() == "#/memory?tile=70"


def test_the_graph_opens_readable(browser, small_server, pipeline_folder):
    """On a screen of 1024 × 768 the graph is inside its canvas, with labels of at least 11 px."""
    with serving(pipeline_folder) as server:
        for url in (small_server.url, server.url):
            browser.open(url=url, width=1024, height=768)
            browser.show(hash="#/graph")
            assert browser.attribute(selector=".graph-map", name="data-fits") == "true"
            assert float(browser.attribute(selector=".graph-map", name="data-text")) >= 11
            box = browser.evaluate(code="document.querySelector('.graph-map').offsetWidth")
            assert box <= 1024
        assert browser.problems() == []


def test_differences_over_time_are_per_item_of_work(
    browser, both_server, small_report, larger_report
):
    """The timeline of a difference says what is compared, and its sums are those of busy cycles."""
    with open_report(small_report) as before, open_report(larger_report) as after:
        change = (
            after.table("steps")["busy_cycles"].sum() - before.table("steps")["busy_cycles"].sum()
        )
    browser.open(url=both_server.url)
    browser.show(hash="#/execution?mode=difference")
    assert browser.count(selector="h2:text-is('Timeline, B − A')") == 1
    text = browser.text(selector=".compared")
    assert "per item of work, not per execution" in text
    shown = re.search(r"([+−])([\d.]+) ?([kM]?) in all", text)
    scale = {"": 1, "k": 1e3, "M": 1e6}[shown[3]] * (1 if shown[1] == "+" else -1)
    assert float(shown[2]) * scale == pytest.approx(change, rel=0.01)
    assert set(browser.evaluate(code=_COLOURS)) >= {"more", "less"}
    assert browser.problems() == []
