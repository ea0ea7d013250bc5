"""Tables of docs/versions.md: rows of new runs replace those of the same versions."""

import sys

import pytest

from tests.sources import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import version_tables

HEADER = "| library | version | passed |"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("..\n3 passed, 2 skipped, 9 deselected in 21.71s", (3, 0, 2)),
        ("FAILED a - 7 passed\n1 failed, 2 passed, 1 error in 1.2s (0:00:01)", (2, 2, 0)),
        ("ImportError: no torch", (0, 0, 0)),
    ],
)
def test_counts(printed, expected):
    """Counts are those of pytest's last line; errors are failures, no line means nothing ran."""
    assert version_tables.counts_of(printed) == expected


def test_rows_replace_those_of_the_same_version(tmp_path, monkeypatch):
    """A new row replaces the one with equal first cells; others and the rest of the page stay."""
    page = tmp_path / "versions.md"
    page.write_text("before\n<!-- libraries -->\n<!-- end of libraries -->\nafter\n")
    monkeypatch.setattr(version_tables, "PAGE", page)
    for rows in (["| jax | 0.9 | 1 |", "| jax | 0.8 | 2 |"], ["| jax | 0.9 | 3 |"]):
        version_tables.write_table("libraries", HEADER, rows, 2)
    lines = page.read_text().splitlines()
    table = [HEADER, "|---|---|---|", "| jax | 0.8 | 2 |", "| jax | 0.9 | 3 |"]
    assert lines[:6] == ["before", "<!-- libraries -->", *table]
    assert lines[-2:] == ["<!-- end of libraries -->", "after"]
