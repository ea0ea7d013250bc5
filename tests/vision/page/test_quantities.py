"""What numbers on the page are: every one has a definition, and one name has one value."""

import pytest

from tests.vision.page.checks import facts_of, whole
from tests.vision.serving import serving
from tremula.vision.analysis.quantities import QUANTITIES
from tremula.vision.report.reader import open_report

pytestmark = pytest.mark.slow
VIEWS = (
    "summary", "memory?tile=3", "liveness", "tree?step=2", "operations", "operations?layer=step",
    "execution?step=2", "stages", "host", "whatif", "graph?step=2", "tensors", "traffic",
    "sql?q=select id as step, cycles from steps",
)  # fmt: skip
# Of each table: [quantity, title, tooltip] of its columns, names of its first text column, cells.
_TABLES = """[...document.querySelectorAll(".table")].map((table) => ({
  heads: [...table.querySelectorAll(".head .cell")].map((cell) => [cell.dataset.quantity ?? "",
    cell.innerText.trim(), cell.querySelector("button").title, cell.classList.contains("text")]),
  rows: [...table.querySelectorAll(".rows .row")].map((row) =>
    [...row.querySelectorAll(".cell")].map((cell) => cell.innerText.trim())),
  scopes: [...table.querySelectorAll(".scopes:not([hidden]) b")].map((one) => one.innerText),
}))"""
_NAMED = """[...document.querySelectorAll("[data-quantity]:not(.cell)")].map((one) =>
  [one.dataset.quantity, one.innerText.trim(), one.title])"""
# What tells rows of a table apart: numbers of the same thing may be compared.
_KEYS = ("step", "operation", "variable", "tensor", "stage", "codelet")


def read_view(page, view, seen):
    """Check a view's headers; add {(title, kind of row, row): {(value, view)}}."""
    page.show(hash=f"#/{view}")
    assert page.count(selector=".failure") == 0
    for key, title, about in page.evaluate(code=_NAMED):
        assert QUANTITIES[key].definition in about, (view, title)
    for table in page.evaluate(code=_TABLES):
        keys = [key for key, *_ in table["heads"]]
        for key, title, about, _ in table["heads"]:
            known = QUANTITIES.get(key.strip("ΔAB"))
            assert known is not None, (view, title)
            assert about, (view, title)
            assert len(about) > len(title), (view, title)
        scopes = {QUANTITIES[key].of for key in keys if key in QUANTITIES}
        assert set(table["scopes"]) <= scopes
        row_key = next((key for key in keys if key in _KEYS), None)
        if row_key is None:
            continue
        names = [row[keys.index(row_key)] for row in table["rows"]]
        for row, name in zip(table["rows"], names, strict=True):
            if names.count(name) > 1 or not name:
                continue  # equal names are several things
            kind = "variable" if row_key == "tensor" else row_key
            for (key, title, *_), value in zip(table["heads"], row, strict=True):
                if key in QUANTITIES and QUANTITIES[key].unit not in ("name", "count"):
                    seen.setdefault((title, kind, name), set()).add((value, key, view))


def check_report(page, views):
    seen: dict[tuple[str, str, str], set[tuple[str, str, str]]] = {}
    for view in views:
        read_view(page, view, seen)
    for name, values in seen.items():
        assert len({(value, key) for value, key, _ in values}) == 1, (name, values)
    compared = [name for name, values in seen.items() if len({view for *_, view in values}) > 1]
    assert len(compared) > 20
    return {title for title, *_ in seen}


def check_programs(page, folder):
    """Summary, Program and SQL count programs and nodes alike."""
    with open_report(folder) as reader:
        n_programs, n_nodes = len(reader.info["program_names"]), len(reader.table("programs")["id"])
    page.show(hash="#/summary")
    shown = facts_of(page)["Programs"]
    assert shown.startswith(f"{n_programs}: ")
    assert f"{n_nodes:,} nodes" in shown
    page.show(hash="#/tree")
    assert {f"{n_programs} program", f"{n_nodes:,} nodes"} <= set(page.texts(selector=".status"))
    page.show(hash="#/sql")
    rows = page.text(selector=".schema summary:has(code:text-is('programs')) small")
    assert whole(rows) == n_nodes


def test_every_quantity_has_one_definition_and_one_value(browser, small_server, pipeline_folder):
    """On one chip and on several, headers come from one table, and one name has one value."""
    browser.open(url=small_server.url)
    titles = check_report(browser, [view for view in VIEWS if view != "stages"])
    assert {"Cycles", "Share", "Compute", "Compute, once"} <= titles
    assert not {"Busy cycles", "Critical path"} & titles  # on one chip both are the cycles
    with serving(pipeline_folder) as server:
        browser.open(url=server.url)
        titles = check_report(browser, VIEWS)
        assert {"Busy cycles", "Critical path", "Of all chips", "Compute"} <= titles
        assert "Cycles" not in titles
        browser.show(hash="#/operations")
        assert {"of all chips", "of the critical path"} <= set(browser.texts(selector=".scopes b"))
        check_programs(browser, pipeline_folder)
    assert browser.problems() == []
