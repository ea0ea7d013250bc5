"""The soak driver: what counts as out of bounds, and its table."""

from dataclasses import replace

import pytest

from tools.soak import Soaked, table

GOOD = Soaked("serve", 100, 0, 30, 100_000_000, 101_000_000, 20, 20)


@pytest.mark.parametrize(
    "change",
    [{"n_good": 0}, {"n_lost": 1}, {"bytes_after": 106_000_000}, {"files_after": 21},
     {"is_alive": False}],
)  # fmt: skip
def test_bounds(change):
    """Lost answers, memory, open files or a dead server each fail a run."""
    assert GOOD.holds
    assert not replace(GOOD, **change).holds


def test_the_table():
    """A row per server, with growth in per cent."""
    assert "| serve | 100 | 0 | 30 | 100.0 | 101.0 | +1.0% | 20 | 20 |" in table([GOOD], 20)
