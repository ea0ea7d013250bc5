"""Pins, marked areas, arrows, traffic and files: what the page shows is what the report has."""

import base64
import json
import re

import numpy as np
import pytest

from tests.vision.page.checks import facts_of, whole
from tests.vision.serving import serving
from tremula.vision.analysis.traffic import step_traffic, total_traffic
from tremula.vision.page_data.traffic import busiest_steps

pytestmark = pytest.mark.slow
AREA = "#/execution?mark={}-{}"


def in_area(reader, begin, end):
    """Brute force: executions, different steps, bytes and phases between cycles, on one chip."""
    ran, steps = reader.trace, reader.table("steps")
    first, last = ran.start[:, 0], ran.end[:, 0]
    share = np.clip(np.minimum(last, end) - np.maximum(first, begin), 0, None)
    share = share / np.maximum(1, last - first)
    inside = share > 0
    n_bytes = (steps["bytes_in"][ran.step] * ran.times * share).sum()
    phases = {
        name: (steps[name][ran.step] * ran.times * share).sum() for name in ("compute", "sync")
    }
    return int(ran.times[inside].sum()), len(set(ran.step[inside].tolist())), n_bytes, phases


def test_sums_over_a_marked_area(page, reader):
    """Shift and a drag mark an area, which is in the link; its sums are those of the report."""
    page.show(hash="#/execution")
    page.drag(selector=".timeline canvas", x=400, y=60, dx=300, key="Shift")
    page.settle()
    begin, end = map(int, re.search(r"mark=(\d+)-(\d+)", page.hash()).groups())
    assert 0 < begin < end < reader.info["total_cycles"]
    for low, high in ((begin, end), (0, reader.info["total_cycles"])):
        page.show(hash=AREA.format(low, high))
        facts = facts_of(page)
        executions, steps, n_bytes, phases = in_area(reader, low, high)
        assert (
            whole(facts["Cycles"].split(",")[0] if high < 1000 else facts["Cycles"].split(", ")[0])
            == high - low
        )
        assert whole(facts["Executions of steps"]) == executions
        assert whole(facts["Different steps"]) == steps
        assert (
            abs(whole(re.search(r"\(([\d,]+) bytes", facts["Bytes exchanged"])[1]) - n_bytes) <= 1
        )
        bar = page.attribute(selector=".marked-area .shares", name="aria-label")
        for name, cycles in phases.items():
            assert abs(whole(re.search(rf"{name} ([\d,]+) cycles", bar)[1]) - cycles) <= 1
    page.click(selector=".marked-area button:text-is('Clear')")
    page.settle()
    assert "mark=" not in page.hash()


def test_arrows_between_producers_and_consumers(page, reader):
    """A chosen execution has arrows from producers and to consumers; they can be off."""
    steps, ran = reader.table("steps"), reader.trace
    entry = next(i for i, step in enumerate(ran.step) if "layer2/product" in steps["path"][step])
    page.show(hash=f"#/execution?step={ran.step[entry]}&entry={entry}")
    page.await_(selector=".flows[data-flows*=',']")
    n_producers, n_consumers = map(
        int, page.attribute(selector=".flows", name="data-flows").split(",")
    )
    assert n_producers > 0
    assert n_consumers > 0
    assert page.count(selector=".flow-row .plain") >= 2
    page.click(selector=".flow-row .plain")
    page.settle()
    producer = int(re.search(r"entry=(\d+)", page.hash())[1])
    assert producer < entry
    page.click(selector=".choice button:text-is('No arrows')")
    page.settle()
    assert "flows=off" in page.hash()
    assert page.attribute(selector=".flows", name="data-flows") == ""


def test_pins_and_notes_stay_in_the_link(page, small_server):
    """A key pins what is shown; the link alone restores view, selection, pins and notes."""
    page.show(hash="#view=memory&tile=5&step=3")
    assert page.texts(selector=".rail a[aria-current]") == ["Memory"]
    assert page.count(selector=".chip") == 2
    page.press(key="p")
    note = "50 % slower; why? <b>&!"
    page.fill(selector=".pin .note-text", text=note)
    page.press(key="Enter")
    page.press(key="Escape")
    page.show(hash=page.hash().replace("#/memory?", "#/execution?"))
    page.press(key="p")
    page.press(key="Escape")
    hash = page.hash()
    page.evaluate(code="location.hash = '#/summary'")
    page.show(hash=hash)
    page.click(selector=".pins")
    titles = page.texts(selector=".pin .go")
    assert titles == ["Memory: step 3, tile 5", "Execution: step 3, tile 5"]
    values = page.evaluate(
        code="[...document.querySelectorAll('.pin .note-text')].map(e => e.value)"
    )
    assert values == [note, ""]
    page.click(selector=".pin .go")
    page.settle()
    assert page.hash().startswith("#/memory")
    page.show(hash="#/summary?pins=%25;;!;memory,tile:x,odd:1!%E0%A4%A;execution,step:2!fine")
    page.click(selector=".pins")
    assert "Execution: step 2" in page.texts(selector=".pin .go")
    page.press(key="Escape")


def test_traffic_between_tiles(page, reader):
    """Totals and routes are the analysis's, of everything and of one step; arrows are drawn."""
    total, step = total_traffic(reader), busiest_steps(reader)[0]
    for hash, traffic in (
        ("#/traffic", total), (f"#/traffic?step={step}", step_traffic(reader, step)),
    ):  # fmt: skip
        page.show(hash=hash)
        text = page.text(selector=".traffic-sum")
        assert whole(re.search(r"\(([\d,]+) bytes\)", text)[1]) == traffic.n_bytes
        assert whole(re.search(r"over ([\d,]+) routes", text)[1]) == len(traffic.pairs.n_bytes)
        cells = page.texts(
            selector=".card:has(h2:text-is('Busiest routes')) .rows .row:first-child .cell"
        )
        assert whole(cells[2]) == traffic.pairs.n_bytes.max()
        assert page.count(selector="[data-arrows]") == 1
    page.focus(selector=".traffic-map canvas")
    page.press(key="ArrowRight")
    page.press(key="Enter")
    page.settle()
    assert "tile=" in page.hash()


def test_files_in_and_out(browser, small_report, larger_report, tmp_path):
    """A dropped report is shown beside the first; other files are errors; a run is saved."""
    with serving(small_report) as server:
        browser.open(url=server.url, fresh=True)
        browser.click(selector=".export")
        path = tmp_path / "run.json"
        name = browser.download(selector=".menu .item:text-is('Chrome trace')", path=str(path))
        assert name.endswith(".json")
        assert json.loads(path.read_text())["traceEvents"]
        browser.press(key="Escape")
        (tmp_path / "none.pop").write_bytes(b"no report")
        browser.upload(selector="input[type=file]", path=str(tmp_path / "none.pop"))
        browser.await_(selector=".message p:has-text('does not start like one')")
        assert "tremula-opened" not in browser.text(selector=".message p")
        browser.click(selector=".message button")
        content = base64.b64encode((larger_report / "profile.pop").read_bytes()).decode()
        browser.drop(name="larger.pop", base64=content)
        browser.await_(selector=".report:has-text('larger.pop')")
        browser.settle()
        assert browser.count(selector=".report") == 2
        assert "report=1" in browser.hash()
        assert len(server.data.readers) == 2
        # The server's answer to the wrong file is a 422, which browsers log.
        assert [p for p in browser.problems() if "422" not in p] == []
