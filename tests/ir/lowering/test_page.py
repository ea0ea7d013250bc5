"""The page of lowered operations is the table's."""

from pathlib import Path

from tremula.ir.op_table import all_decompositions, all_lowerings, aten_markdown

PAGE = Path(__file__).resolve().parents[3] / "docs" / "aten.md"


def test_the_page_is_up_to_date():
    """docs/aten.md is what the table of lowerings says."""
    assert PAGE.read_text(encoding="utf-8") == aten_markdown(), "run `make docs`"


def test_the_page_has_every_operation():
    """Each entry of the table has a row, and each row says what it becomes."""
    rows = [line for line in aten_markdown().splitlines() if line.startswith("| `")]
    assert len(rows) == len(all_lowerings()) + len(all_decompositions())
    assert all(row.split("|")[2].strip() for row in rows)
