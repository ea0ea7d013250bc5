"""The time views of a pipeline over four chips: what each says is what pva and the report say."""

import json

import numpy as np
import pytest

import pva
from tests.vision.page.checks import facts_of, first_row, whole
from tests.vision.page.pipeline_run import (
    CHIP_OF_STAGE,
    N_CHIPS,
    N_MICRO_BATCHES,
    N_RUNS,
    N_STAGES,
    WORK_OF_STAGE,
)
from tests.vision.programs import summing_engine
from tests.vision.serving import serving
from tremula.vision.page_data.fetch import PageData
from tremula.vision.page_data.pack import unpack_pack
from tremula.vision.report.reader import open_report
from tremula.vision.report.timeline import timeline
from tremula.vision.report.write import report_of_engine
from tremula.vision.trace.export import export_chrome, export_perfetto

pytestmark = pytest.mark.slow
PHASES = {
    "compute": "compute", "exchange": "exchange", "between chips": "links", "host": "host",
    "sync": "sync", "waiting": "waiting",
}  # fmt: skip


@pytest.fixture(scope="module")
def opened(pipeline_folder):
    return pva.openReport(pipeline_folder)


@pytest.fixture(scope="module")
def pipeline_server(pipeline_folder):
    with serving(pipeline_folder) as server:
        yield server


@pytest.fixture
def page(browser, pipeline_server):
    browser.open(url=pipeline_server.url)
    yield browser
    assert browser.count(selector=".failure") == 0
    assert browser.problems() == []


def pack(opened, name):
    return unpack_pack(PageData([opened.reader]).pack(f"0/{name}"))


def percent(share: float) -> str:
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 or value == 0 else f"{value:.1f} %"


# -- one machine -----------------------------------------------------------------------------------


def test_chips_are_named(page, opened):
    """A tile is called by its chip and its number there: in details, tables and for readers."""
    steps, per_chip = opened.reader.table("steps"), opened.reader.tiles_per_ipu
    step = int(steps["compute"].argmax())
    chip, tile = divmod(int(steps["critical_tile"][step]), per_chip)
    page.show(hash=f"#/execution?step={step}")
    assert facts_of(page)["Critical tile"] == f"chip {chip}, tile {tile}"
    labels = page.evaluate(
        code="[...document.querySelectorAll('canvas[role=img]')].map(c => c.ariaLabel)"
    )
    assert all(labels)
    assert any(f"chip {chip}, tile {tile}" in label for label in labels)
    fullest = int(opened.compilation.memoryByTile()["includingGaps"].argmax())
    page.show(hash="#/summary")
    chip, tile = divmod(fullest, per_chip)
    assert page.texts(selector=".figure span")[1].startswith(f"chip {chip}, tile {tile}:")


def test_phases_agree_everywhere(page, opened):
    """Summary, Execution and each chip's bar have the report's five phases and waiting."""
    total, chips = opened.execution.totalCycles, opened.reader.table("ipus")
    shares = {name: chips[key].mean() / total for name, key in PHASES.items()}
    assert sum(shares.values()) == pytest.approx(1)
    page.show(hash="#/summary")
    assert whole(page.text(selector=".figure b")) == total
    bars = page.evaluate(code="[...document.querySelectorAll('.shares')].map(e => e.ariaLabel)")
    told = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    assert bars[0] == told
    for chip in range(N_CHIPS):
        mine = (f"{name} {percent(chips[key][chip] / total)}" for name, key in PHASES.items())
        assert bars[1 + chip] == ", ".join(mine)
    page.show(hash="#/execution")
    assert whole(page.text(selector=".figure b")) == total
    legend = page.texts(selector=".card:has(h2:text-is('In sight')) .legend li")
    assert ", ".join(text.replace("\n", " ") for text in legend) == told
    executed = int(opened.reader.table("steps")["executed"].sum())
    assert page.text(selector=".folded") == f"{executed:,} executions, one by one"
    page.show(hash="#/tree")
    cells = dict(zip(page.texts(selector=".head .cell"), first_row(page), strict=True))
    assert whole(cells["Critical path"]) == total
    busy = {name: int(chips[key].sum()) for name, key in PHASES.items() if key != "waiting"}
    assert whole(cells["Busy cycles"]) == sum(busy.values())
    for name, cycles in busy.items():
        if cycles:
            assert whole(cells[name.capitalize()]) == cycles


def test_a_step_in_all_views(page, opened):
    """A step's phases, cycles of the total and stage are the report's."""
    steps = opened.reader.table("steps")
    for name in ("compute", "links", "host"):
        step = int(steps[name].argmax())
        page.show(hash=f"#/execution?step={step}")
        facts = facts_of(page)
        once, _, parts = facts["Cycles, once"].partition(": ")
        assert whole(once) == steps["cycles"][step]
        result = {
            text.rpartition(" ")[0]: whole(text.rpartition(" ")[2]) for text in parts.split(", ")
        }
        wanted = {n: int(steps[key][step]) for n, key in PHASES.items() if key in steps}
        assert result == {n: cycles for n, cycles in wanted.items() if cycles}
        assert whole(facts["Critical path"].split(", ")[0]) == steps["total_cycles"][step]
        assert whole(facts["Busy cycles"].split(", ")[0]) == steps["busy_cycles"][step]
        assert facts.get("Stage", "-1") == str(steps["stage"][step])


# -- the pipeline ----------------------------------------------------------------------------------


def test_stages(page, opened):
    """Figures, stages and waits are those of the report; a box leads to its part of the trace."""
    facts, columns = pack(opened, "stages")
    page.show(hash="#/stages")
    figures = dict(
        zip(page.texts(selector=".figure small"), page.texts(selector=".figure b"), strict=True)
    )
    assert figures["Stages × micro-batches"] == f"{N_STAGES} × {N_MICRO_BATCHES}"
    assert figures["Slowest stage"] == f"Stage {np.argmax(WORK_OF_STAGE)}"
    length = sum(one["end"] - one["begin"] for one in facts["passes"])
    bubbles = sum(sum(one["bubbles"].values()) for one in facts["passes"])
    assert figures["Bubbles"] == percent(bubbles / (length * N_CHIPS))
    label = page.attribute(selector=".pipeline canvas", name="aria-label")
    n_visits = N_STAGES * N_MICRO_BATCHES * N_RUNS
    assert label == f"{N_STAGES} stages over time: {n_visits} visits in {N_RUNS} passes"
    rows = page.texts(selector=".card:has(h2:text-is('Each stage')) .rows .row")
    chips = [int(row.split("\n")[1]) for row in rows]
    assert chips == list(CHIP_OF_STAGE)
    titles = page.texts(selector=".card:has(h2:text-is('Each stage')) .head .cell")
    for title, key in (
        ("Critical path", "path_cycles"), ("Busy cycles", "busy_cycles"),
        ("Compute", "busy_compute"), ("Others wait for it", "awaited_cycles"),
    ):  # fmt: skip
        shown = [whole(row.split("\n")[titles.index(title)]) for row in rows]
        assert shown == [stage[key] for stage in facts["stages"]], title
    assert "Chips wait" in page.text(selector=".all-waiting")
    waits = page.text(selector=".card:has(h2:text-is('What chips wait for')) .rows .row")
    assert "stage 3 on chip 3" in waits
    page.focus(selector=".pipeline canvas")
    for key in (".", "ArrowDown", "ArrowDown", "ArrowDown", "."):
        page.press(key=key)
    assert page.text(selector=".bubble").startswith("stage 3, micro-batch 1")
    page.click(selector=".visit-note .go")
    page.settle()
    assert page.hash().startswith("#/execution?from=")
    visit = np.flatnonzero((columns["visit_stage"] == 3) & (columns["visit_micro_batch"] == 1))[0]
    wanted = columns["visit_end"][visit] - columns["visit_begin"][visit]
    assert whole(page.text(selector=".figure b")) == wanted
    page.show(hash="#/stages?rows=chips")
    assert page.count(selector=".pipeline canvas") == 1


def test_the_timeline_by_keyboard(page, opened):
    """Arrows choose a chip, full stop its next step, Enter selects it; stages have names."""
    page.show(hash="#/execution")
    assert page.attribute(selector=".timeline", name="data-detail") == "entries"
    page.focus(selector=".timeline canvas")
    seen = []
    for _ in range(12):
        page.press(key=".")
        seen.append(page.text(selector=".bubble"))
    assert any("stage 0, micro-batch 0" in text for text in seen)
    starts = [whole(text.rpartition("from cycle")[2]) for text in seen]
    assert starts == sorted(starts)
    assert len(set(starts)) == len(starts)
    page.press(key="ArrowDown")
    assert "\nchip\n1" in page.text(selector=".bubble")
    page.press(key="Enter")
    page.settle()
    step = int(page.hash().split("step=")[1].split("&")[0])
    assert opened.reader.table("steps")["path"][step] in page.texts(selector=".card h2")


# -- charts ----------------------------------------------------------------------------------------


def test_the_wheel_scrolls_the_page(page):
    """The wheel alone scrolls; with Ctrl, or on a chart that has the focus, it zooms."""
    page.show(hash="#/execution")
    top = "document.querySelector('.stage').scrollTop"
    total = page.text(selector=".figure b")
    page.wheel(selector=".timeline canvas", dy=120)
    page.settle()
    assert page.evaluate(code=top) > 0
    assert "from=" not in page.hash()
    scrolled = page.evaluate(code=top)
    page.wheel(selector=".timeline canvas", dy=-240, key="Control")
    page.settle()
    assert page.evaluate(code=top) == scrolled
    assert "from=" in page.hash()
    assert whole(page.text(selector=".figure b")) < whole(total)
    page.focus(selector=".timeline canvas")
    page.press(key="0")
    page.wheel(selector=".timeline canvas", dy=-120)
    page.settle()
    assert "from=" in page.hash()


def test_folds_are_said(browser, tmp_path, monkeypatch):
    """Where one turn of a loop stands for several, the timeline says so, and for how many."""
    monkeypatch.setattr(timeline, "MOST_UNFOLDED", 20)
    engine = summing_engine(n_times=50).load()
    engine.run()
    with serving(report_of_engine(engine, tmp_path)) as server, open_report(tmp_path) as reader:
        browser.open(url=server.url)
        browser.show(hash="#/execution")
        folded = f"100 executions, folded into {reader.n_entries}"
        assert browser.text(selector=".folded").startswith(folded)
        assert folded in browser.attribute(selector=".timeline canvas", name="aria-label")
        assert whole(browser.text(selector=".figure b")) == reader.info["total_cycles"]
        browser.focus(selector=".timeline canvas")
        for _ in range(3):  # the third step is the first of the turn between
            browser.press(key=".")
        assert "×48 folded" in browser.text(selector=".bubble")
        assert browser.problems() == []


def test_the_heat_map_has_the_colours_of_its_legend(browser, pipeline_server, long_server):
    """Every pixel is a shade that the legend shows, whether cells are single or pooled."""
    for server, n_phases in ((pipeline_server, 5), (long_server, 4)):
        browser.open(url=server.url)
        browser.show(hash="#/execution")
        check_pixels(browser, n_phases)


def check_pixels(browser, n_phases):
    code = """(() => {
      const canvas = document.querySelector('.heat canvas'), pen = canvas.getContext('2d');
      const { data } = pen.getImageData(0, 0, canvas.width, canvas.height), found = new Set();
      for (let i = 0; i < data.length; i += 4) {
        found.add(`rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})`);
      }
      const items = [...document.querySelectorAll('.heat-legend i')];
      const shades = items.map((one) => one.style.background);
      const strange = [...found].filter((one) => !shades.includes(one));
      return { strange, n: found.size, nShades: shades.length };
    })()"""
    assert browser.attribute(selector=".heat", name="data-painter") == "canvas"
    told = browser.evaluate(code=code)
    assert told["strange"] == []
    assert told["n"] >= 3
    assert told["nShades"] == n_phases * 4 + 1
    assert browser.problems() == []


def test_host(page, opened):
    """The verdict is the analysis's, and the device's run has the report's time."""
    facts, _ = pack(opened, "host")
    page.show(hash="#/host")
    assert page.text(selector=".verdict b").lower().endswith(facts["verdict"]["verdict"])
    assert page.text(selector=".card .note") == facts["verdict"]["why"]
    cycles = int(opened.reader.table("runs")["cycles_to"][0])
    assert any(f"modelled: {cycles:,} cycles" in text for text in page.texts(selector=".status"))
    label = page.attribute(selector=".device-run canvas", name="aria-label")
    assert "a row for each of 4 chips" in label


def test_other_tools_see_stages(opened, tmp_path):
    """Chrome and Perfetto get the stage and micro-batch of everything that a stage ran."""
    path = export_chrome(tmp_path / "t.json", report=opened.reader)
    told = [e for e in json.loads(path.read_text())["traceEvents"] if "stage" in e.get("args", {})]
    ran = opened.reader.trace
    assert len(told) == ((ran.end > ran.start) & (ran.stage >= 0)[:, None]).sum() > 0
    seen = {(e["tid"], e["args"]["stage"]) for e in told}
    assert seen == {(chip, stage) for stage, chip in enumerate(CHIP_OF_STAGE)}
    batches = {e["args"]["micro_batch"] for e in told}
    assert batches == set(ran.micro_batch[ran.stage >= 0].tolist())
    perfetto = export_perfetto(tmp_path / "t.pftrace", report=opened.reader).read_bytes()
    assert perfetto.count(b"micro_batch") == len(told)
