"""`tremula bench`: suites of the checkout, and what to do where there is none."""

import json

import pytest

from tests.scripts import run_command
from tremula.base.errors import InvalidOption
from tremula.commands import bench


def test_the_checkout_has_the_benchmarks(repository):
    """The folder beside the sources in use is the repository's, and its suites load."""
    assert bench.checkout() == repository
    assert "core" in bench.load_benchmarks(repository).SUITES


def test_a_wheel_says_what_is_missing(tmp_path):
    """Without the folder the error names it, where this Tremula is, and what to do."""
    with pytest.raises(InvalidOption) as raised:
        bench.load_benchmarks(tmp_path)
    message = str(raised.value)
    assert "folder `benchmarks` of a checkout" in message
    assert "pip install --editable" in message


def test_help_works_without_the_suites(tmp_path, monkeypatch):
    """From a wheel `--help` says that suites need a checkout, and raises nothing."""
    monkeypatch.setattr(bench, "checkout", lambda: tmp_path)
    assert "needs a checkout" in bench._suites_help()


@pytest.mark.slow
def test_figures_are_measured_from_any_folder(tmp_path, repository):
    """`tremula bench core --only …`, run elsewhere, finds its suites, in child processes too."""
    command = ["bench", "core", "--only", "first-engine", "--json", "figures.json"]
    code, printed = run_command(tmp_path, *command, PYTHONPATH=str(repository / "src"))
    assert code in {0, 1}, printed  # 1: a busy machine missed a bar
    records = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert [record["unit"] for record in records] == ["s"] * len(records)
