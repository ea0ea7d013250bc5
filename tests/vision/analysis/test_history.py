"""A folder of reports over time: every lasting move is found, with the run that made it."""

import json
import re

import numpy as np
import pytest

from tests.vision.programs import summing_engine
from tremula.commands import main
from tremula.vision.analysis.history import change_points, history_of
from tremula.vision.report.commit import commit_of
from tremula.vision.report.reader import open_report
from tremula.vision.report.write import report_of_engine

TIMES = {"run1": 3, "run2": 3, "run9": 5, "run10": 5}  # run10 comes after run9


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Four runs of a model; the third repeats its loop more often."""
    folder = tmp_path_factory.mktemp("runs")
    for name, n_times in TIMES.items():
        engine = summing_engine(n_times=n_times).load()
        engine.run()
        report_of_engine(engine, folder / name)
    return folder


def test_steps_are_found_in_noise():
    """Random levels with noise far below their steps: cuts are where levels change, no others."""
    random = np.random.default_rng(7)
    for _ in range(40):
        lengths = random.integers(3, 12, 4)
        levels = 1e6 * np.cumprod(1 + random.choice([-1, 1], 4) * random.uniform(0.1, 0.5, 4))
        exact = np.repeat(levels, lengths)
        noisy = exact * (1 + 0.004 * random.standard_normal(len(exact)))
        wanted = np.cumsum(lengths)[:-1].tolist()
        assert [at for at, *_ in change_points(exact, 0.01)] == wanted
        assert [at for at, *_ in change_points(noisy, 0.03)] == wanted


def test_small_moves_and_short_series():
    """A step below the threshold is none; a step in the last run counts; one run has none."""
    assert change_points(np.array([1000.0, 1000, 1005, 1005]), 0.01) == []
    assert [p[0] for p in change_points(np.array([1000.0, 1000, 1000, 1011]), 0.01)] == [3]
    assert change_points(np.array([5.0]), 0.01) == []
    assert change_points(np.array([]), 0.01) == []


def test_the_run_that_moved_it(runs):
    """Runs are in natural order; cycles are the reports'; the third run moved them, with causes."""
    (model,) = history_of(runs).models
    assert [run.name for run in model.runs] == list(TIMES)
    for run in model.runs:
        with open_report(run.path) as reader:
            assert run.cycles == reader.info["total_cycles"]
            assert run.memory_bytes == reader.table("tiles")["including_gaps"].sum()
    (change,) = model.changes
    assert (change.metric, change.run, change.previous) == ("cycles", "run9", "run2")
    assert (change.before, change.after) == (model.runs[0].cycles, model.runs[2].cycles)
    assert any("cycles: main/layer1" in cause for cause in change.causes)


def test_command_prints_plots_and_json(runs, tmp_path, capsys):
    """Text, JSON, a page and a picture name the run; a damaged report is skipped with a reason."""
    (runs / "bad.pop").write_bytes(b"no report")
    try:
        page, picture = tmp_path / "h.html", tmp_path / "h.svg"
        assert main(["history", str(runs), "--html", str(page), "--svg", str(picture)]) == 0
        text = capsys.readouterr().out
        assert re.search(r"run9.*cycles.*\+66\.7", text)
        assert "skipped" in text
        assert "bad.pop" in text
        assert main(["history", str(runs), "--json", "--metric", "cycles"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["models"][0]["changes"][0]["run"] == "run9"
        assert len(facts["skipped"]) == 1
        for path in (page, picture):
            assert "run9" in path.read_text()
            assert "://" not in path.read_text().replace("http://www.w3.org/2000/svg", "")
            assert "<script" not in path.read_text()
    finally:
        (runs / "bad.pop").unlink()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["none"], "not a folder"), (["."], "no report"), ([".", "--model", "x"], "no report")],
)
def test_wrong_folders(arguments, reason, tmp_path, monkeypatch, capsys):
    """A missing folder and one without reports are errors that say what to do."""
    monkeypatch.chdir(tmp_path)
    assert main(["history", *arguments]) == 1
    error = capsys.readouterr().err
    assert reason in error
    assert "\n  try: " in error


def test_models_of_a_run_are_separate(runs, capsys):
    """A run's second engine, in RUN/2, is another model; an unknown model is answered with all."""
    assert main(["history", str(runs), "--model", "bert"]) == 1
    assert "there are program" in capsys.readouterr().err


def test_commits_are_read_from_git_files(tmp_path):
    """A branch, packed branches, a detached HEAD and a worktree give the commit."""
    one, other = "a" * 40, "b" * 40
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit_of(tmp_path) == ""
    (git / "packed-refs").write_text(f"# pack-refs\n{other} refs/heads/main\n")
    assert commit_of(tmp_path) == other
    (git / "refs" / "heads" / "main").write_text(f"{one}\n")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    assert commit_of(tmp_path / "deep" / "er") == one
    tree = git / "worktrees" / "t"
    tree.mkdir(parents=True)
    (tree / "HEAD").write_text("ref: refs/heads/main\n")
    (tree / "commondir").write_text("../..\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {tree}\n")
    assert commit_of(tmp_path / "tree") == one
    (git / "HEAD").write_text(f"{other}\n")
    assert commit_of(tmp_path) == other
