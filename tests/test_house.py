"""tools/house.py, which prints how the source reads."""

import subprocess
import sys

import pytest

from tests.sources import ROOT

HOUSE = ROOT / "tools" / "house.py"


def house(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HOUSE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_figure_has_a_line():
    """Without an argument the tool prints all fifteen figures, each with a number."""
    ran = house()
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 15
    for name in ("run loops", "lines of src that ship", "functions p50", "banned words"):
        assert any(line.startswith(name) and any(map(str.isdigit, line)) for line in lines), name


@pytest.mark.slow
def test_a_figure_lists_its_places():
    """With a figure's name the tool prints as many places as the figure says."""
    ran = house("circles")
    head, *places = ran.stdout.splitlines()
    assert int(head.rpartition(" ")[2]) == len(places)


def test_an_unknown_figure_is_an_error():
    """A name that no figure begins with gives the list of figures, and status 2."""
    ran = house("windows")
    assert ran.returncode == 2
    assert "run loops" in ran.stderr
