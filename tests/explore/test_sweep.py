"""Sweeps: spaces from files, points, fronts, kept results, a cluster that loses a worker."""

import os
import signal
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tremula.base.errors import PoplarError
from tremula.commands import main
from tremula.explore import sweeps
from tremula.explore.cluster import ClusterFailed, results_on_cluster
from tremula.explore.space import load_space
from tremula.explore.sweeps import pareto, sweep

SCRIPT = """
import poptorch, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
poptorch.inferenceModel(model)(torch.ones(4, 8))
"""
SPACE = """
name = "small"
[models]
mlp = "model.py"
[chip]
base = "bow"
tiles = [4, 8]
clock = 1.5e9
[options]
batch = [4, 8]
"""


@pytest.fixture
def space(tmp_path):
    (tmp_path / "model.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "space.toml").write_text(SPACE, encoding="utf-8")
    return tmp_path / "space.toml"


def test_all_combinations(space):
    """Every value of every chip constant and option is combined with every other."""
    result = load_space(space)
    assert result.name == "small"
    jobs = result.jobs
    assert len(jobs) == 4
    assert jobs[0]["chip"] == {"base": "bow", "n_tiles": 4, "clock_hz": 1.5e9}
    assert [job["options"]["batch"] for job in jobs] == [4, 8, 4, 8]
    assert jobs[0]["script"] == str(space.parent / "model.py")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[model]", "unknown table 'model'"),
        ("[models]", "has no models"),
        ("[models]\nmlp = 3", "model 'mlp'"),
        ("[models]\nmlp = {scrip = 'x'}", "unknown key of model 'mlp' 'scrip'"),
        ("[models]\nmlp = 'x'\n[chip]\ntile = 3", "unknown constant of a chip 'tile'"),
        ("[models]\nmlp = 'x'\n[options]\nstage = 3", "unknown option 'stage'"),
        (
            "[models]\nmlp = 'x'\n[options]\nstages = [1, 'two']",
            "stages is 'two', expected a whole",
        ),
        ("[models]\nmlp = 'x'\n[options]\nbatch = 0", "batch is 0, expected a whole number, 1 or"),
        ("[models]\nmlp = 'x'\n[options]\nbatch = []", "batch has no values"),
        ("[models]\nmlp = 'x'\n[options]\nrecomputes = 1", "recomputes is 1, expected true or"),
        ("[models]\nmlp = 'x'\n[chip]\nbase = 'bowl'", "unknown chip 'bowl'"),
        ("[models", "cannot read the space"),
    ],
)
def test_bad_spaces(tmp_path, text, said):
    """What is wrong with a space is said, with the nearest name."""
    (tmp_path / "space.toml").write_text(text, encoding="utf-8")
    with pytest.raises(PoplarError) as error:
        load_space(tmp_path / "space.toml")
    assert said in str(error.value)


def test_a_sweep_is_kept_and_resumed(space, tmp_path, monkeypatch, capsys):
    """Points are compiled once: half of a sweep is not computed again by the whole of it."""
    half = load_space(space)
    half = type(half)(half.name, half.models, {**half.chip, "n_tiles": [8]}, half.options)
    folder = tmp_path / "kept"
    first = sweep(half, folder=folder, n_workers=1)
    assert [p.outcome.n_samples for p in first.points] == [4, 8]
    assert all(p.outcome.fits for p in first.points)
    asked = []
    kept = first.points[0].outcome.as_dict()
    monkeypatch.setattr(sweeps, "results_of", lambda _, jobs, __: ((j, kept) for j in note(jobs)))

    def note(jobs):
        asked.extend(jobs)
        return jobs

    page = tmp_path / "page.html"
    assert main(["sweep", str(space), "--folder", str(folder), "--html", str(page)]) == 0
    assert [job["chip"]["n_tiles"] for _, job in asked] == [4, 4]
    said = capsys.readouterr().out
    assert "mlp base=bow tiles=8 clock=1.5e+09 batch=8" in said
    assert "front" in said
    assert page.read_text().count("<svg") == 2


def test_a_point_that_cannot_be_made_is_an_outcome(space, tmp_path):
    """Memory that is no multiple of a memory element is an error of its point, not of the sweep."""
    whole = load_space(space)
    odd = {"base": ["bow"], "n_bytes_per_tile": [1000]}
    result = sweep(
        type(whole)("odd", whole.models, odd, {"batch": [4]}), folder=tmp_path / "x", n_workers=1
    )
    assert "n_bytes_per_tile" in result.points[0].outcome.error
    assert result.is_front == (False,)


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=12))
def test_fronts(rows):
    """A row is on the front if no other is as good everywhere and better somewhere."""
    aims = np.array(rows, float).reshape(-1, 3)
    expected = [
        not any(all(o <= m for o, m in zip(other, mine, strict=True)) and other != mine
                for other in rows)
        for mine in rows
    ]  # fmt: skip
    assert pareto(aims).tolist() == expected


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker(tmp_path):
    """On a cluster of two workers, one of them killed at work, every job has its result."""
    distributed = pytest.importorskip("distributed")
    killed = tmp_path / "killed"

    def job(number):
        if number == 0 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
        return number**2

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        result = dict(results_on_cluster(cluster.scheduler_address, job, range(6)))
    assert result == {n: n**2 for n in range(6)}
    assert killed.exists()


@pytest.mark.slow
def test_a_cluster_that_does_not_answer():
    """An address without a listener is an error that says how to start a cluster."""
    pytest.importorskip("distributed")
    with pytest.raises(ClusterFailed, match=r"no cluster answers at 'tcp://127.0.0.1:1'"):
        list(results_on_cluster("tcp://127.0.0.1:1", abs, [1], timeout_s=0.2))


def test_points_have_performance_per_area_and_watt(space, tmp_path):
    """Chips of half the tiles take about half the area; table and figures agree."""
    swept = sweep(load_space(space), folder=tmp_path / "results", n_workers=1)
    few, many = (next(p for p in swept.points if p.job["chip"]["n_tiles"] == n) for n in (4, 8))
    assert few.area_mm2 < many.area_mm2
    rate = few.outcome.n_samples / few.outcome.seconds
    assert few.per_mm2 == pytest.approx(rate / few.area_mm2)
    assert few.per_watt == pytest.approx(few.outcome.n_samples / few.outcome.joules)
    text = sweeps.swept_table(swept)
    assert "samples/s/mm2" in text
    assert f"{few.per_mm2:.4g}" in text
