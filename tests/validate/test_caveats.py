"""docs/caveats.md: mechanisms that are not modelled, with their effects."""

import re
from pathlib import Path

from tremula.compiler.report.intervals import LogResidual, Residuals, shipped_residuals
from tremula.validate.caveats import CAVEATS, caveats_markdown

PAGE = Path(__file__).parents[2] / "docs" / "caveats.md"


def test_the_page_is_up_to_date():
    """`make docs` writes it from the shipped residuals."""
    assert PAGE.read_text(encoding="utf-8") == caveats_markdown()


def test_every_mechanism_is_there_with_its_effect():
    """Those that rows show have a line of figures, others are said to be without a measurement."""
    page = caveats_markdown()
    for one in CAVEATS:
        shown = [r for r in shipped_residuals().rows if one.rows and re.search(one.rows, r.row)]
        assert (f"| {one.name} | {len(shown)} |" in page) == bool(shown)
        assert f"* **{one.name}**" in page


def test_effects_follow_the_residuals():
    """A row that takes twice as long is +100 %; a row that nothing explains is listed."""
    rows = [LogResidual("reduce", "a", f"row-{i}", 0.01) for i in range(40)]
    rows += [
        LogResidual("links", "a", "links-random-9", 0.6931),
        LogResidual("reduce", "a", "odd", 2.0),
    ]
    page = caveats_markdown(Residuals(tuple(rows), 1.0))
    assert "| Contention of messages between chips | 1 | +100% |" in page
    assert "* odd (reduce): +639%" in page
