"""A real browser clicks through every view; what the page says is what pva says."""

import re

import pytest

import pva
from tests.vision.demo import EVIL
from tests.vision.page.checks import whole
from tremula.vision.analysis.operations import operation_columns

pytestmark = pytest.mark.slow
VIEWS = (
    "summary", "memory", "liveness", "tree", "operations", "execution", "chip", "host", "whatif",
)  # fmt: skip


@pytest.fixture
def opened(small_report):
    return pva.openReport(small_report)


def test_every_view_paints_in_both_themes(browser, small_server):
    """Each view has cards, in light and dark, without an error; keys 1 to 9 reach them."""
    for theme in ("light", "dark"):
        browser.open(url=small_server.url, theme=theme)
        for number, view in enumerate(VIEWS, 1):
            browser.press(key=str(number))
            browser.settle()
            assert browser.hash().startswith(f"#/{view}")
            assert browser.count(selector=".stage .card") >= 1
            assert browser.count(selector=".failure") == 0
        assert browser.problems() == []


def test_summary(page, opened):
    """Total cycles with their interval, the fullest tile and the fit are pva's."""
    page.show(hash="#/summary")
    figures = page.texts(selector=".figure b")
    assert whole(figures[0]) == opened.execution.totalCycles
    assert page.count(selector=".band i") == page.count(selector=".band em") == 1
    assert "on hardware, nine times in ten" in page.texts(selector=".band-text")[0]
    used = opened.compilation.memoryByTile()["includingGaps"]
    assert f"tile {used.argmax():,}" in page.texts(selector=".figure span")[1]
    assert figures[2] == "Yes"
    assert page.count(selector=".insight") >= 1
    page.click(selector=".insight .go")
    assert page.hash() != "#/summary"


def test_memory(page, opened):
    """A chosen tile's bytes and variables are pva's; a click and the keyboard choose tiles."""
    page.show(hash="#/memory?tile=7")
    memory = opened.compilation.tiles[7].memory
    note = page.text(selector=".tile-note")
    kibibytes = float(re.search(r"Needs ([\d.]+) KiB", note)[1])
    assert kibibytes == pytest.approx(memory.total.includingGaps / 1024, abs=0.6)
    n_here = len(opened.compilation.loweredVariables.forTile(7))
    assert f"{n_here} variables" in page.texts(selector=".tools .status")
    page.click(selector=".chart canvas", x=400, y=100)
    page.settle()
    chosen = int(re.search(r"tile=(\d+)", page.hash())[1])
    assert chosen != 7
    page.press(key="ArrowRight")
    page.settle()
    assert f"tile={chosen + 1}" in page.hash()
    assert f"Tile {chosen + 1}" in page.texts(selector=".card h2")


def test_memory_splits(page):
    """Every split of memory draws, and the choice is part of the address."""
    for name in ("Category", "Region", "Total", "Liveness"):
        page.show(hash="#/memory")
        page.click(selector=f".choice button:text-is('{name}')")
        page.settle()
        assert f"by={name.lower()}" in page.hash()


def test_a_variable_is_followed_to_its_tiles(page, opened):
    """Choosing a variable draws its bytes; its row says on how many tiles it lies."""
    page.show(hash="#/memory")
    page.fill(selector=".card:has(h2:text-is('Variables')) .search", text="layer1/weights")
    page.settle()
    page.click(selector=".card:has(h2:text-is('Variables')) .rows .row")
    page.settle()
    assert "variable=" in page.hash()
    assert page.texts(selector=".legend li")[0] == "layer1/weights"


def test_names_are_text(page):
    """A name that looks like HTML is shown as it is, and runs nothing."""
    page.show(hash="#/memory")
    page.fill(selector=".card:has(h2:text-is('Variables')) .search", text="<img")
    page.settle()
    assert page.text(selector=".card:has(h2:text-is('Variables')) .rows .cell") == EVIL
    assert page.count(selector="img") == 0


def test_liveness(page, opened, small_report):
    """The peak is the step with most temporary bytes, and what lives there is listed."""
    page.show(hash="#/liveness")
    steps = opened.reader.table("steps")
    peak = int(steps["temporary_bytes"].argmax())
    assert page.text(selector=".peak") == f"Peak: step {peak}"
    assert f"Live at step {peak}" in page.texts(selector=".card h2")
    live = opened.reader.live_at(peak)
    n_live = int((live.n_bytes > 0).sum())
    assert f"{n_live} live" in page.texts(selector=".status")
    page.click(selector=".peak")
    assert f"step={peak}" in page.hash()
    largest = page.texts(selector=".card:has(h2:text-is('What would lower the peak')) .rows .cell")
    assert largest[0]


def test_program_tree(page, opened):
    """The tree's root has all cycles; a search shows what matches and what is above it."""
    page.show(hash="#/tree")
    cells = page.texts(selector=".rows .row:first-child .cell")
    assert whole(cells[2]) == opened.execution.totalCycles
    page.fill(selector=".search", text="softmax")
    page.settle()
    names = page.texts(selector=".rows .row .cell:first-child")
    assert any("softmax" in name for name in names)
    assert not any("layer2/update" in name for name in names)
    page.click(selector=".rows .row:last-child")
    page.settle()
    assert "step=" in page.hash()


def test_operations(page, opened):
    """Cycles of operations are the analysis's, and add up to the total in every layer."""
    total = int(opened.reader.table("steps")["total_cycles"].sum())
    for layer in ("operation", "module", "line", "step"):
        page.show(hash=f"#/operations?layer={layer}")
        details = page.texts(selector=".facts dd")
        assert whole(details[1].split(", ")[0]) == total
    page.show(hash="#/operations")
    names = page.texts(selector=".rows .row .cell:nth-child(1)")
    cycles = page.texts(selector=".rows .row .cell:nth-child(2)")
    shown = {name: whole(value) for name, value in zip(names, cycles, strict=True)}
    wanted = operation_columns(opened.reader)
    pairs = dict(zip(wanted["name"], wanted["cycles"].tolist(), strict=True))
    assert {name: pairs[name] for name in shown} == shown
    page.click(selector=".rows .row:nth-child(2)")
    assert "op=" in page.hash()


def test_roofline(page, opened):
    """Every operation with flops is a point; keys and clicks choose it, and its flops are shown."""
    wanted = operation_columns(opened.reader)
    has_flops = wanted["n_flops"] > 0
    page.show(hash="#/operations")
    assert page.attribute(selector=".roofline", name="data-points") == str(has_flops.sum())
    page.focus(selector=".roofline canvas")
    page.press(key="ArrowRight")
    page.settle()
    facts = dict(
        zip(page.texts(selector=".facts dt"), page.texts(selector=".facts dd"), strict=True)
    )
    name = page.texts(selector=".card h2")[-1]
    at = wanted["name"].index(name)
    assert has_flops[at]
    assert whole(facts["Flops"].split(", ")[0]) == wanted["n_flops"][at]
    assert facts["Bound by"] == wanted["bound"][at]
    page.press(key="ArrowRight")
    page.settle()
    assert page.texts(selector=".card h2")[-1] != name


def test_execution(page, opened):
    """A step's cycles, balance and critical tile are the report's; all ways to draw it work."""
    steps = opened.reader.table("steps")
    step = int(steps["compute"].argmax())
    page.show(hash=f"#/execution?step={step}")
    facts = dict(
        zip(page.texts(selector=".facts dt"), page.texts(selector=".facts dd"), strict=True)
    )
    assert whole(facts["Cycles, once"].split(":")[0]) == steps["cycles"][step]
    assert whole(facts["Critical tile"]) == steps["critical_tile"][step]
    assert facts["Type"] == steps["type"][step]
    page.click(selector=".critical")
    assert f"tile={steps['critical_tile'][step]}" in page.hash()
    for name in ("Compute", "Exchange", "Waiting", "Phases", "Flat", "Flame"):
        page.click(selector=f".choice button:text-is('{name}')")
        page.settle()
        assert page.count(selector=".failure") == 0
    assert page.attribute(selector=".heat", name="data-complete") == "true"


def test_zoom_is_part_of_the_address(page):
    """Zooming the timeline with keys changes the address; opening that shows the same stretch."""
    page.show(hash="#/execution")
    before = page.text(selector=".figure b")
    page.focus(selector=".timeline canvas")
    for _ in range(3):
        page.press(key="+")
    page.settle()
    assert "from=" in page.hash()
    zoomed = page.text(selector=".figure b")
    assert whole(zoomed) < whole(before)
    hash = page.hash()
    page.show(hash="#/summary")
    page.show(hash=hash)
    assert abs(whole(page.text(selector=".figure b")) - whole(zoomed)) <= 1


@pytest.mark.parametrize("painter", ["webgl2", "canvas"])
def test_both_painters_of_the_heat_map(browser, small_server, painter):
    """WebGL2 and a plain canvas draw the heat map; single steps are drawn with their phases."""
    browser.open(url=small_server.url)
    browser.open(url=f"http://{small_server.authority}/?painter={painter}#/execution")
    browser.settle()
    assert browser.attribute(selector=".heat", name="data-painter") == painter
    assert browser.attribute(selector=".heat", name="data-complete") == "true"
    browser.show(hash="#/liveness")
    assert browser.attribute(selector=".heat", name="data-complete") == "true"
    assert browser.problems() == []


def test_host(page):
    """The system trace beside the report is shown: events of all channels, the device's runs."""
    page.show(hash="#/host")
    events = page.texts(selector=".rows .row .cell:first-child")
    assert {"epoch", "run", "trained", "Engine.run"} <= set(events)
    assert page.count(selector=".lanes canvas") == 1


def test_selection_crosses_views(page):
    """A tile and a step stay selected from view to view, until Escape."""
    page.show(hash="#/memory?tile=5&step=3")
    for view in VIEWS:
        page.click(selector=f".rail a[href*='#/{view}']")
        page.settle()
        assert "tile=5" in page.hash()
        assert "step=3" in page.hash()
    assert page.count(selector=".chip") == 2
    page.evaluate(code="document.activeElement.blur()")
    page.press(key="Escape")
    page.settle()
    assert page.count(selector=".chip") == 0


def test_the_theme_can_be_chosen(page):
    """A button changes the theme, and the next visit remembers it."""
    page.press(key="d")
    page.settle()
    assert page.evaluate(code="document.documentElement.dataset.theme") == "dark"
    page.evaluate(code="location.reload()")
    page.await_(selector="html[data-theme='dark'] .stage[data-ready]")
