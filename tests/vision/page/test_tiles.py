"""Tiles on the page: addresses of one, and all of them on the chip, step after step."""

import re

import numpy as np
import pytest

from tests.vision.demo import train_on_chips
from tests.vision.page.checks import whole
from tests.vision.serve.test_server import ask
from tests.vision.serving import serving
from tremula.compiler.passes.memory import CATEGORIES, CODE_CATEGORIES
from tremula.vision.page_data.fetch import PageData
from tremula.vision.page_data.memory import STEPS_PER_PART, TILES_PER_PART, is_code
from tremula.vision.page_data.pack import unpack_pack
from tremula.vision.report.reader import open_report

slow = pytest.mark.slow
MAP = ".memory-map canvas"
PLAN = "canvas[aria-label*='iles on the chip'], canvas[aria-label*='of every tile']"


# -- packs -----------------------------------------------------------------------------------------


def test_code_is_told_by_its_name():
    """The page's rule for what is code is the compiler's list."""
    assert [name for name in CATEGORIES if is_code(name)] == list(CODE_CATEGORIES)


def test_packs_hold_addresses_and_live_bytes(reader):
    """Addresses and temporary bytes of steps are the reader's, part by part."""
    data = PageData([reader])
    for tile in (0, reader.n_tiles - 1):
        _, columns = unpack_pack(data.pack(f"0/tile-contents/{tile // TILES_PER_PART}"))
        first, last = columns["start"][tile % TILES_PER_PART :][:2]
        assert columns["address"][first:last].tolist() == reader.tile_addresses(tile).tolist()
    parts = [
        unpack_pack(data.pack(f"0/step-live/{part}"))[1]["live"].reshape(-1, reader.n_tiles)
        for part in range(-(-reader.n_steps // STEPS_PER_PART))
    ]
    wanted = reader.matrix("live").rows(0, reader.n_steps)
    assert np.array_equal(np.concatenate(parts), wanted)


def test_parts_outside_do_not_exist(small_server, reader):
    """A part after the last is a plain 404."""
    part = -(-reader.n_steps // STEPS_PER_PART)
    path = f"/data/0/step-live/{part}"
    assert ask(small_server, path, X_Tremula_Token=small_server.token)[0] == 404


# -- addresses -------------------------------------------------------------------------------------


@slow
def test_the_map_says_what_is_used(page, reader):
    """Bytes of the map at the tile's peak are the tile's, gaps left out; steps can be chosen."""
    tile = int(reader.table("tiles")["including_gaps"].argmax())
    page.show(hash=f"#/memory?tile={tile}")
    peak = int(reader.table("tiles")["peak_step"][tile])
    assert f"Addresses of tile {tile} at step {peak}" in page.texts(selector=".card h2")
    used = reader.table("tiles")["excluding_gaps"][tile] / 1024
    told = float(re.match(r"([\d.]+) KiB in", page.text(selector=".addresses .note"))[1])
    assert told == pytest.approx(used, abs=0.06)
    page.show(hash=f"#/memory?tile={tile}&step=0")
    assert f"Addresses of tile {tile} at step 0" in page.texts(selector=".card h2")
    page.click(selector=".addresses button:text-is('Go to its peak: step " + str(peak) + "')")
    page.settle()
    assert f"step={peak}" in page.hash()


@slow
def test_the_map_by_keyboard(page):
    """Arrows walk through blocks in the order of addresses; Enter selects a variable."""
    page.show(hash="#/memory?tile=3")
    page.focus(selector=MAP)
    addresses = []
    for _ in range(60):
        page.press(key="ArrowRight")
        words = page.text(selector=".bubble").split()
        addresses.append(int(words[words.index("from") + 1], 16))
    assert addresses == sorted(addresses)
    assert len(set(addresses)) > 5
    page.press(key="Enter")
    page.settle()
    assert "variable=" in page.hash()
    assert "free" in page.attribute(selector=MAP, name="aria-label")


@slow
def test_the_map_of_what_is_used(page):
    """The map can be of what is used alone: then a row holds fewer bytes."""
    heights = []
    for span in ("all", "used"):
        page.show(hash=f"#/memory?tile=3&span={span}")
        heights.append(page.evaluate(code=f"document.querySelector('{MAP}').offsetHeight"))
    assert heights[0] != heights[1]
    assert page.count(selector=".failure") == 0


# -- the chip --------------------------------------------------------------------------------------


def told_most(page) -> float:
    """The most of any tile, as the note says it, in its unit."""
    return float(re.search(r"most ([\d.,]+)", page.text(selector=".step-note"))[1].replace(",", ""))


@slow
@pytest.mark.parametrize("what", ["compute", "exchange", "idle"])
def test_cycles_on_the_chip(page, reader, what):
    """The most of any tile at a step is the report's."""
    step = int(reader.table("steps")[what if what != "idle" else "compute"].argmax())
    page.show(hash=f"#/chip?show={what}&step={step}")
    assert told_most(page) == getattr(reader.step_cycles(step), what).max()
    assert reader.table("steps")["path"][step] in page.text(selector=".stage .card p")


@slow
def test_memory_on_the_chip(page, reader):
    """Temporary bytes of a step, and with them all that is in use."""
    step = int(reader.table("steps")["largest_temporary"].argmax())
    live = reader.matrix("live").row(step)
    page.show(hash=f"#/chip?show=temporary&step={step}")
    assert told_most(page) == pytest.approx(live.max() / 1024, abs=0.006)
    page.show(hash=f"#/chip?step={step}")
    used = live + reader.table("tiles")["always_live"]
    assert told_most(page) == pytest.approx(used.max() / 1024, abs=0.06)


@slow
def test_playing(page, reader):
    """Space plays and pauses, comma and full stop go one step; then the address has the step."""
    page.show(hash="#/chip?step=0&pace=24")
    page.press(key=".")
    page.press(key=".")
    page.press(key=",")
    page.settle()
    assert "step=1" in page.hash()
    page.press(key=" ")
    page.until(code="document.querySelector('.scrub').value > 1")
    assert page.text(selector=".play") == "Pause"
    page.press(key=" ")
    page.settle()
    assert page.text(selector=".play") == "Play"
    step = int(re.search(r"step=(\d+)", page.hash())[1])
    assert 1 < step < reader.n_steps
    page.focus(selector=".scrub")
    page.press(key="End")
    page.settle()
    assert f"step={reader.n_steps - 1}" in page.hash()
    label = page.attribute(selector=".stage canvas", name="aria-label")
    assert label.startswith(f"Step {reader.n_steps - 1} of {reader.n_steps}")


@slow
def test_several_chips(browser, tmp_path):
    """Every chip has its own plan; tiles of all of them can be chosen, in either order."""
    report = train_on_chips(tmp_path, 4)
    with serving(report) as server, open_report(report) as reader:
        browser.open(url=server.url)
        for view in ("memory", "chip"):
            for order in ("place", "number"):
                browser.show(hash=f"#/{view}?tile={reader.n_tiles - 1}&order={order}")
                browser.focus(selector=PLAN)
                browser.press(key="ArrowLeft")
                browser.settle()
                assert f"tile={reader.n_tiles - 2}" in browser.hash()
        assert (
            whole(browser.text(selector=".step-note").split(" tiles")[0].split(" of ")[1])
            == reader.n_tiles
        )
        assert browser.problems() == []


@slow
def test_charts_in_words(page, reader):
    """Charts say in words what is largest, and where."""
    page.show(hash="#/memory?by=total")
    tile = int(reader.table("tiles")["including_gaps"].argmax())
    label = page.attribute(selector=".chart canvas", name="aria-label")
    assert label.startswith("Bytes on every tile: including gaps at most ")
    assert label.endswith(f"tile {tile}")
    page.show(hash="#/liveness")
    step = int(reader.table("steps")["temporary_bytes"].argmax())
    assert page.attribute(selector=".chart canvas", name="aria-label").endswith(f"step {step}")
