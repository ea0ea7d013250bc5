"""The garden's page in a real browser: search, filters, cards, keys, themes; offline, and light."""

import base64
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.vision.browser import Browser, missing
from tremula.garden.application import Modelled
from tremula.garden.catalogue import page_file
from tremula.garden.catalogue.catalogue import find_application
from tremula.garden.catalogue.figures import Figures
from tremula.garden.catalogue.manifest import Published
from tremula.garden.catalogue.pictures import small_png

MOST_BYTES = 600_000
N = 40


def invented():
    """Forty applications of two domains; the titles of some try to break out of the page."""
    like = find_application("mnist_poptorch")
    for i in range(N):
        yield replace(
            like,
            name=f"app_{i}",
            title=f"Number {i} </script><b>bold</b>" if i % 10 == 3 else f"Number {i}",
            summary="zebra" if i == 7 else "horse",
            domain=("vision", "physics")[i % 2],
            framework=("poplar", "keras", "jax")[i % 3],
            techniques=("pipelining",) if i < 5 else ("packing", "sparsity"),
            published=(Published("ten times as fast", "slide 3"),),
        )


def figures(path):
    """What a run of each would leave: the even ones a noisy picture, which deflates badly."""
    number = int(path.parent.name.removeprefix("app_"))
    noise = np.random.default_rng(number).random((300, 300))
    return Figures(
        results={"accuracy": 0.9375, "relative_error": 1.25e-6},
        modelled=Modelled(
            machine="bow", cycles=123456, bytes_on_fullest_tile=2048, rate=1.5e6, unit="rows/s"
        ),
        curves={"loss": list(np.geomspace(2, 0.1, 60))},
        picture=base64.b64encode(small_png(noise)).decode() if number % 2 == 0 else "",
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page of the invented applications."""
    folder = tmp_path_factory.mktemp("garden")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_file, "read_figures", figures)
        patch.setattr(page_file, "figures_file", lambda one: folder / one.name / "figures.json")
        page_file.write_page(list(invented()), folder / "garden.html")
    return folder / "garden.html"


@pytest.fixture(scope="module")
def browser():
    if why := missing():
        pytest.skip(f"no browser: {why}")
    with Browser() as made:
        yield made


@pytest.fixture
def page(browser, file):
    """The page from its file, without a network; the browser must not report any problem."""
    browser.open(url=file.as_uri(), offline=True, fresh=True)
    yield browser
    assert browser.problems() == []


def names(page):
    return page.evaluate(code="[...document.querySelectorAll('.app')].map((e) => e.dataset.name)")


def test_forty_cards_are_light_enough(file):
    """Forty applications with noisy pictures stay below 600 KB in one file that loads nothing."""
    assert file.stat().st_size <= MOST_BYTES
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)=["']?https?:""", text)
    assert "default-src 'none'" in text


def test_a_card_shows_what_a_run_left(page):
    """Title, picture, curve, results, cycles, rate, memory, claim, command."""
    assert len(names(page)) == N
    text = page.text(selector="[data-name=app_4]")
    for words in (
        "Number 4", "vision · keras", "accuracy\n0.9375", "relative error\n1.25e-6",
        "on bow\n123,456 cycles", "1.50 M rows/s", "2.00 KiB", "published: ten times as fast",
        "tremula garden run app_4 --tiny", "loss: from 2 to 0.1",
    ):  # fmt: skip
        assert words in text
    assert page.evaluate(code="document.querySelector('[data-name=app_4] img').naturalWidth") > 30
    assert "Number 3 </script><b>bold</b>" in page.text(selector="[data-name=app_3]")
    assert page.count(selector=".app h2 b") == 0


def test_searching(page):
    """Words narrow the cards as they are typed; / goes to the field, Escape clears it."""
    page.press(key="/")
    assert page.evaluate(code="document.activeElement.matches('.search')")
    page.fill(selector=".search", text="ZEBRA number")
    assert names(page) == ["app_7"]
    assert page.text(selector=".status") == f"1 of {N} applications"
    page.fill(selector=".search", text="unicorn")
    assert page.text(selector=".status") == "No application fits."
    page.press(key="Escape")
    assert len(names(page)) == N


def test_filters_and_the_address(page, file):
    """Filters combine, say how many they leave, and stand in the address."""
    page.click(selector="[data-filter='domain=physics']")
    page.click(selector="[data-filter='technique=pipelining']")
    assert names(page) == ["app_1", "app_3"]
    assert page.text(selector="[data-filter='framework=poplar']") == "poplar\n1"
    assert page.attribute(selector="[data-filter='framework=jax']", name="disabled") is not None
    hash = page.hash()
    assert hash == "#domain=physics&technique=pipelining"
    page.open(url=file.as_uri() + hash, offline=True, fresh=True)
    assert names(page) == ["app_1", "app_3"]
    page.click(selector="[data-filter='domain=physics']")
    assert len(names(page)) == 5
    page.click(selector=".clear")
    assert len(names(page)) == N


def test_a_technique_on_a_card_filters(page):
    """A click on a card's technique shows all cards that teach it."""
    page.click(selector="[data-name=app_0] .tags button")
    assert names(page) == [f"app_{i}" for i in range(5)]


def test_keys_alone(page):
    """Every control is reached by Tab; arrows go from card to card; filters keep the focus."""
    page.focus(selector="[data-name=app_0] h2 a")
    page.press(key="ArrowRight")
    at = "document.activeElement.closest('.app').dataset.name"
    assert page.evaluate(code=at) == "app_1"
    page.press(key="ArrowDown")
    below = int(page.evaluate(code=at).removeprefix("app_"))
    assert below > 1
    page.press(key="ArrowUp")
    assert page.evaluate(code=at) == "app_1"
    page.focus(selector="[data-filter='domain=vision']")
    page.press(key="Enter")
    assert len(names(page)) == N // 2
    assert page.evaluate(code="document.activeElement.dataset.filter") == "domain=vision"
    reachable = "button, a, input"
    stray = f"[...document.querySelectorAll('{reachable}')].filter((e) => e.tabIndex < 0).length"
    assert page.evaluate(code=stray) == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_themes(browser, file, theme):
    """The system's theme holds until `d` switches it, twice is back again."""
    browser.open(url=file.as_uri(), offline=True, fresh=True, theme=theme)
    seen = []
    for _ in range(3):
        seen.append(browser.evaluate(code="getComputedStyle(document.body).backgroundColor"))
        browser.press(key="d")
    assert seen[0] == seen[2] != seen[1]
    assert seen[theme == "dark"] == "rgb(244, 245, 247)"


def test_texts_have_the_analysers_colours():
    """Every text colour is a variable of the analyser's sheet, whose contrasts are tested there."""
    sheet = (Path(page_file.__file__).parent / "page" / "garden.css").read_text(encoding="utf-8")
    colours = re.findall(r"(?<![-\w])color: ([^;}]+)", sheet)
    assert colours
    assert all(colour.startswith("var(--") for colour in colours)


def test_a_narrow_window(page, file):
    """On a phone nothing is wider than the window, and filters keep their names."""
    page.open(url=file.as_uri(), offline=True, fresh=True, width=380, height=800)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(code=wide) <= 0
    assert "vision" in page.text(selector="[data-filter='domain=vision']")
