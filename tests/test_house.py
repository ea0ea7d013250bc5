"""tools/house.py, which prints how the source reads."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT, house


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tool beside two packages only: figures of all files are computed by those who ask."""
    root = tmp_path_factory.mktemp("house")
    (root / "tools").mkdir()
    for package in ("base", "hardware"):
        shutil.copytree(ROOT / "src/tremula" / package, root / "src/tremula" / package)
    shutil.copy(ROOT / "tools/house_imports.py", root / "tools")
    return Path(shutil.copy(ROOT / "tools/house.py", root / "tools"))


def run_tool(tool: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_figure_has_a_line(tool):
    """Without an argument the tool prints all seventeen figures, each with a number."""
    ran = run_tool(tool)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 17
    for name in ("run loops", "lines of src that ship", "functions p50", "banned words"):
        assert any(line.startswith(name) and any(map(str.isdigit, line)) for line in lines), name


@pytest.mark.parametrize("figure", ["circles", "files under"])
def test_a_figure_lists_its_places(tool, figure):
    """With a figure's name the tool prints as many places as the figure says."""
    head, *places = run_tool(tool, figure).stdout.splitlines()
    assert int(head.rpartition(" ")[2]) == len(places)


@pytest.mark.wide
def test_figures_of_the_whole_source(capsys):
    """The tool reads every file that there is."""
    assert house.main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 17


def test_an_unknown_figure_is_an_error(tool):
    """A name that no figure begins with gives the list of figures, and status 2."""
    ran = run_tool(tool, "windows")
    assert ran.returncode == 2
    assert "run loops" in ran.stderr


def test_banned_names_are_counted_in_modules_and_functions(tmp_path, monkeypatch):
    """Variables of a module, a function and a loop count; fields of codelets and strings do not."""
    for folder in ("src", "examples", "benchmarks", "tools"):
        (tmp_path / folder).mkdir()
    names = ["fou" + "nd", "giv" + "en", "ke" + "pt", "he" + "ld"]
    (tmp_path / "examples" / "script.py").write_text(
        f"{names[0]} = 1\ndef f():\n    for {names[1]} in (): print('{names[0]}')\n"
        f"class A(Vertex):\n    {names[2]}: int\n"
    )
    (tmp_path / "benchmarks" / "suite.py").write_text(f"with open('') as {names[3]}: pass\n")
    monkeypatch.setattr(house, "ROOT", tmp_path)
    assert house.banned_names() == [
        f"examples/script.py:1 {names[0]}",
        f"examples/script.py:3 {names[1]}",
        f"benchmarks/suite.py:1 {names[3]}",
    ]
