"""Figures of two runs side by side."""

import pytest

from benchmarks.comparison import Record, changes, print_changes, read_record, write_record
from benchmarks.figures import Figure
from tests.sources import ROOT


def record(machine: str = "a", **values: float) -> Record:
    """A record of one suite; names say unit and bar: `ratio_low` is better when lower."""
    bars = {
        "ratio_low": ("× torch", "<= 2"),
        "rate_high": ("rows/s", ">= 10"),
        "exact": ("cycles", "== 7"),
    }
    figures = [Figure.of(name, value, *bars[name]) for name, value in values.items()]
    return Record(machine, {"suite": figures})


@pytest.mark.parametrize(
    ("name", "before", "now", "is_worse"),
    [
        ("ratio_low", 1.0, 1.1, False),
        ("ratio_low", 1.0, 1.3, True),
        ("ratio_low", 1.95, 2.05, True),  # within the noise, but it misses its bar
        ("ratio_low", 1.0, 0.5, False),
        ("rate_high", 100, 80, True),
        ("rate_high", 100, 130, False),
        ("exact", 7, 9, True),
    ],
)
def test_worse_is_away_from_the_bar(name, before, now, is_worse):
    """A figure is worse if it moves away from its bar by more than the noise, or misses it."""
    (change,) = changes(record(**{name: before}), record(**{name: now}))
    assert change.is_regression is is_worse


def test_speeds_of_other_machines_are_not_judged(capsys):
    """Rates of another machine are listed but never worse; ratios are judged everywhere."""
    before, now = record("a", rate_high=100, ratio_low=1), record("b", rate_high=11, ratio_low=1.9)
    assert print_changes(before, now) == 1
    printed = capsys.readouterr().out
    assert "ratio_low: 1 → 1.9 × torch" in printed
    assert "1 of 2 figures compared" in printed


def test_records_survive_their_file(tmp_path):
    """A record reads back equal; the last release's is readable and not empty."""
    written = record(ratio_low=1.5, exact=7)
    write_record(written, tmp_path / "record.json")
    assert read_record(tmp_path / "record.json") == written
    released = read_record(ROOT / "benchmarks" / "last_release.json")
    assert sum(map(len, released.suites.values())) > 50
