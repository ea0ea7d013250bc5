"""What each view must say of any report, asked of pva; every check shows its view first."""

import re

import numpy as np
import pytest

import pva
from tremula.vision.analysis.operations import operation_columns


def whole(text: str) -> int:
    return int(re.sub(r"[^\d]", "", text))


def facts_of(page) -> dict[str, str]:
    terms, values = page.texts(selector=".facts dt"), page.texts(selector=".facts dd")
    return dict(zip(terms, values, strict=True))


def first_row(page, title: str = "") -> list[str]:
    """The cells of the first row of a view's table, or of that in the card of a title."""
    card = f".card:has(h2:text-is('{title}')) " if title else ""
    return page.texts(selector=f"{card}.rows .row:first-child .cell")


def check_summary(page, opened: pva.Report) -> None:
    """Totals, the fullest tile and the number of steps."""
    page.show(hash="#/summary")
    figures, notes = page.texts(selector=".figure b"), page.texts(selector=".figure span")
    assert whole(figures[0]) == opened.execution.totalCycles
    used = opened.compilation.memoryByTile()["includingGaps"]
    assert notes[1].startswith(f"tile {used.argmax():,}:")
    n_steps = len(opened.reader.table("steps")["id"])
    assert f"{opened.compilation.graph.numVertices:,} vertices, {n_steps:,} steps" in notes
    facts = facts_of(page)
    assert whole(facts["Chips × tiles"].split("×")[1]) == opened.compilation.target.tilesPerIpu


def check_memory(page, opened: pva.Report) -> None:
    """The fullest tile's bytes and variables; the largest variable of all."""
    compilation = opened.compilation
    tile = int(compilation.memoryByTile()["includingGaps"].argmax())
    page.show(hash=f"#/memory?tile={tile}")
    note = page.text(selector=".tile-note")
    kibibytes = float(re.search(r"Needs ([\d.]+) KiB", note)[1])
    wanted = compilation.tiles[tile].memory.total.includingGaps / 1024
    assert kibibytes == pytest.approx(wanted, abs=0.6)
    n_here = len(compilation.loweredVariables.forTile(tile))
    assert f"{n_here:,} variables" in page.texts(selector=".tools .status")
    variables = opened.reader.table("variables")
    largest = variables["name"][int(np.argmax(variables["n_bytes"]))]
    assert first_row(page, "Variables")[0] == largest


def check_liveness(page, opened: pva.Report) -> None:
    """The peak, how many variables live there, and the largest of them."""
    page.show(hash="#/liveness")
    steps = opened.reader.table("steps")
    peak = int(steps["temporary_bytes"].argmax())
    assert page.text(selector=".peak") == f"Peak: step {peak}"
    live = opened.reader.live_at(peak)
    assert f"{int((live.n_bytes > 0).sum()):,} live" in page.texts(selector=".status")
    names = opened.reader.table("variables")["name"]
    largest = {names[v] for v in live.variable[live.n_bytes == live.n_bytes.max()].tolist()}
    assert first_row(page, f"Live at step {peak}")[0] in largest


def check_tree(page, opened: pva.Report) -> None:
    """The root has all cycles and all programs are counted."""
    page.show(hash="#/tree")
    cells = first_row(page)
    assert whole(cells[2]) == opened.execution.totalCycles
    n_programs = len(opened.reader.table("programs")["id"])
    assert f"{n_programs:,} nodes" in page.texts(selector=".status")


def check_operations(page, opened: pva.Report) -> None:
    """The most expensive operation and its cycles; all add up in every layer."""
    for layer in ("module", "line", "step", "operation"):
        page.show(hash=f"#/operations?layer={layer}")
        assert whole(facts_of(page)["Cycles"].split(", ")[0]) == opened.execution.totalCycles
    wanted = operation_columns(opened.reader)
    top = int(np.argmax(wanted["cycles"]))
    cells = first_row(page)
    assert (cells[0], whole(cells[1])) == (wanted["name"][top], int(wanted["cycles"][top]))


def check_execution(page, opened: pva.Report) -> None:
    """All cycles in sight; the step with most compute, its critical tile and its balance."""
    page.show(hash="#/execution")
    assert whole(page.text(selector=".figure b")) == opened.execution.totalCycles
    steps = opened.reader.table("steps")
    assert f"{len(steps['id']):,} steps" in page.texts(selector=".status")
    step = int(steps["compute"].argmax())
    page.show(hash=f"#/execution?step={step}")
    facts = facts_of(page)
    assert whole(facts["Cycles, once"].split(":")[0]) == steps["cycles"][step]
    assert whole(facts["Critical tile"]) == steps["critical_tile"][step]
    assert page.attribute(selector=".heat", name="data-complete") == "true"


CHECKS = {
    "summary": check_summary,
    "memory": check_memory,
    "liveness": check_liveness,
    "tree": check_tree,
    "operations": check_operations,
    "execution": check_execution,
}
