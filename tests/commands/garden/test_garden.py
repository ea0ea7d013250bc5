"""`tremula garden`: lists, shows, copies, runs, and keeps figures."""

import json

import pytest

from tests.garden.catalogue.test_manifest import RIGHT
from tremula.commands import main

MAIN = '''"""Warms a plate."""

import numpy as np

from tremula.garden.applications.heat.plate import ERROR
from tremula.garden.application import Findings, Modelled


def run(settings):
    settings.show(f"tiny: {settings.tiny}")
    modelled = Modelled(
        machine="bow", cycles=1200, bytes_on_fullest_tile=2048, rate=1.5e6, unit="steps/s"
    )
    picture = np.add.outer(np.arange(300.0), np.arange(200.0))
    curve = [1 / (i + 1) for i in range(500)]
    return Findings(
        results={"error": ERROR}, modelled=modelled, curves={"error": curve}, picture=picture
    )
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with an application `heat` of two files."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "applications" / "heat"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text('"""Heat."""\n')
    (folder / "plate.py").write_text('"""A plate."""\n\nERROR = 1e-4\n')
    (folder / "main.py").write_text(MAIN)
    (folder / "manifest.toml").write_text(RIGHT)
    return tmp_path


def test_the_list_is_filtered_by_options_and_words(capsys):
    """Options may stand before and after words; nothing found is said, with exit code 1."""
    assert main(["garden"]) == 0
    everything = capsys.readouterr().out
    assert "mnist_poptorch" in everything
    assert main(["garden", "handwritten", "--framework", "poptorch", "--domain", "vision"]) == 0
    assert capsys.readouterr().out.startswith("mnist_poptorch")
    assert main(["garden", "--technique", "device iterations", "handwritten"]) == 0
    assert capsys.readouterr().out.startswith("mnist_poptorch")
    assert main(["garden", "no such words"]) == 1
    assert "None of the" in capsys.readouterr().out


def test_wrong_words_of_filters_are_answered_with_the_nearest(capsys):
    """`--technique pipelinig` names pipelining."""
    with pytest.raises(SystemExit, match="2"):
        main(["garden", "--technique", "pipelinig"])
    assert "did you mean 'pipelining'" in capsys.readouterr().err


def test_show_tells_what_a_manifest_says(capsys):
    """Title, what to install, the tiny command and what must be reached."""
    assert main(["garden", "show", "mnist-poptorch"]) == 0
    text = capsys.readouterr().out
    for words in (
        "Handwritten digits", "'tremula[torch]'", "garden run mnist_poptorch --tiny", "accuracy >=",
    ):  # fmt: skip
        assert words in text


def test_an_unknown_name_is_an_error(capsys):
    """The nearest name is suggested, without a traceback."""
    assert main(["garden", "run", "mnist_poptorhc"]) == 1
    assert "did you mean 'mnist_poptorch'" in capsys.readouterr().err


def test_a_copy_runs(here, capsys, monkeypatch):
    """`new` copies a folder whose files import each other; `run` runs it from there."""
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert main(["garden", "new", "my_heat", "--from", "./applications/heat"]) == 0
    assert "from my_heat.plate import ERROR" in (here / "my_heat" / "main.py").read_text()
    capsys.readouterr()
    assert main(["garden", "run", "./my_heat", "--tiny"]) == 0
    text = capsys.readouterr().out
    assert "tiny: True" in text
    assert "error 0.0001" in text
    assert "bow: 1,200 cycles, 1.5e+06 steps/s, 2 KiB on the fullest tile" in text
    assert main(["garden", "new", "my_heat", "--from", "./applications/heat"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["garden", "new", "my-heat!", "--from", "./applications/heat"]) == 1
    assert "cannot name an application" in capsys.readouterr().err


@pytest.mark.slow
def test_figures_are_kept_beside_the_manifest(here, capsys):
    """`figures` runs in a process, prints its time, and writes small figures that `show` reads."""
    assert main(["garden", "new", "warm", "--from", "./applications/heat"]) == 0
    assert main(["garden", "figures", "./warm", "--reports", "made"]) == 0
    text = capsys.readouterr().out
    assert "1 of 1 are right" in text
    assert (here / "made" / "warm").is_dir()  # for its report, if it makes one
    kept = json.loads((here / "warm" / "figures.json").read_text())
    assert kept["results"] == {"error": 1e-4}
    assert len(kept["curves"]["error"]) == 60
    assert kept["curves"]["error"][-1] == 0.002
    assert kept["picture"].startswith("iVBOR")  # a PNG
    assert len(kept["picture"]) < 12_000
    assert main(["garden", "show", "./warm"]) == 0
    assert "reached     error 0.0001" in capsys.readouterr().out


@pytest.mark.slow
def test_a_failure_shows_its_last_lines(here, capsys):
    """An application that misses its limit fails the table, and what it printed is shown."""
    assert main(["garden", "new", "cold", "--from", "./applications/heat"]) == 0
    (here / "cold" / "plate.py").write_text("ERROR = 0.5\n")
    assert main(["garden", "figures", "./cold"]) == 1
    text = capsys.readouterr().out
    assert "FAILED" in text
    assert "expected <= 1e-3, got 0.5" in text
    assert not (here / "cold" / "figures.json").exists()
