"""Finding things: the palette, the list of keys, several tiles, charts saved as pictures."""

import re
import xml.etree.ElementTree as ET

import pytest

from tremula.vision.report.reader import open_report

pytestmark = pytest.mark.slow


def go_to(page, words, key="g"):
    """Type words into the palette and take what it finds first."""
    page.press(key=key)
    page.await_(selector=".palette li[role='option']")
    page.fill(selector=".palette input", text=words)
    page.await_(selector=".palette li[aria-selected='true'], .palette .none:has-text('Nothing')")
    page.press(key="Enter")


def test_the_palette(page, reader):
    """Tiles, chips, steps, names and views are found by what they are called."""
    page.show(hash="#/summary")
    go_to(page, "tile 17")
    assert page.hash() == "#/memory?tile=17"
    go_to(page, "chip 0, tile 3", key="/")
    assert page.hash() == "#/memory?tile=3"
    go_to(page, "step 4")
    assert page.hash() == "#/memory?tile=3&step=4"
    go_to(page, "Liveness")
    assert page.hash().startswith("#/liveness")
    page.settle()
    page.press(key="g")
    page.await_(selector=".palette li")
    page.fill(selector=".palette input", text="layer1 weights")
    page.await_(selector=".palette li:has-text('layer1/weights')")
    page.press(key="Enter")
    variable = reader.table("variables")["name"].index("layer1/weights")
    assert f"variable={variable}" in page.hash()
    page.press(key="g")
    page.fill(selector=".palette input", text="no such name at all")
    page.await_(selector=".palette .none:has-text('Nothing has this name')")
    page.press(key="Escape")
    page.await_(selector="body:not(:has(.palette))")
    page.press(key="?")
    assert "go to a tile" in page.text(selector=".help")
    page.press(key="Escape")
    page.await_(selector="body:not(:has(.help))")


def test_several_tiles(page, small_report):
    """Tiles chosen with Shift or in the palette stand beside each other, with their own bytes."""
    page.show(hash="#/memory")
    go_to(page, "tiles 0, 5-6")
    page.await_(selector="h2:text-is('3 tiles')")
    page.settle()
    assert (
        page.count(selector=".card:has(h2:text-is('3 tiles')) .head button:text-is('Tile 6')") == 1
    )
    page.fill(selector=".card:has(h2:text-is('3 tiles')) .search", text="layer1/weights")
    page.settle()
    cells = page.texts(
        selector=".card:has(h2:text-is('3 tiles')) .table:last-child .rows .row:first-child .cell"
    )
    with open_report(small_report) as reader:
        number = reader.table("variables")["name"].index("layer1/weights")
        wanted = reader.tile_bytes(number)[[0, 5, 6]].tolist()
    assert cells[0] == "layer1/weights"
    assert [int(re.sub(r"\D", "", cell) or 0) for cell in cells[2:]] == wanted
    page.click(selector=".chart canvas", x=700, y=100, modifiers=["Shift"])
    page.await_(selector="h2:text-is('4 tiles')")
    page.click(selector=".chart canvas", x=300, y=100)
    page.settle()
    assert "tiles=" not in page.hash()


def test_charts_are_saved_as_pictures(page, tmp_path):
    """A chart becomes SVG with its title, axis and legend as text, or a PNG."""
    page.show(hash="#/memory")
    page.focus(selector=".chart canvas")
    page.press(key="s")
    path = tmp_path / "picture"
    name = page.download(selector=".menu .item:text-is('Save as SVG')", path=str(path))
    assert name == "bytes-on-each-tile.svg"
    texts = [element.text for element in ET.parse(path).iter() if element.text]
    assert {"Bytes on each tile", "always live", "tile"} <= set(texts)
    page.show(hash="#/execution")
    page.hover(selector=".heat canvas:nth-child(2)")
    page.click(selector=".save-picture")
    name = page.download(selector=".menu .item:text-is('Save as PNG')", path=str(path))
    assert name == "every-tile.png"
    assert path.read_bytes().startswith(b"\x89PNG")
