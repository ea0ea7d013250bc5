"""Work on several threads: how many, in which order, and whose error."""

import os
import threading

import pytest

from tremula.compiler.passes.parallel import in_parallel, n_cores


@pytest.mark.parametrize(("stated", "threads"), [("", 3), ("2", 2), ("8", 3), ("2,1", 2), ("x", 3)])
def test_threads_are_cores_unless_fewer_are_stated(stated, threads, monkeypatch):
    """A process on three cores uses three threads, or as few as OMP_NUM_THREADS says."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 5}, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", stated)
    assert n_cores() == threads


@pytest.mark.parametrize("n_runs", [0, 1 << 20])
def test_results_and_errors_keep_the_order(n_runs, monkeypatch):
    """Results are in the order of the items; the first item's error is the one that is raised."""
    monkeypatch.setattr("tremula.compiler.passes.parallel.n_cores", lambda: 4)
    assert in_parallel(lambda x: 10 // x, [5, 2, 1], lambda _: n_runs) == [2, 5, 10]
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda x: 10 // x, [0, "not a number"], lambda _: n_runs)


def test_items_with_long_columns_are_computed_by_other_threads(monkeypatch):
    """Those with few runs are computed by the calling thread, each in its place."""
    monkeypatch.setattr("tremula.compiler.passes.parallel.n_cores", lambda: 2)
    mine, sizes = threading.get_ident(), [3, 1 << 20, 5, 1 << 20]
    threads = in_parallel(lambda _: threading.get_ident(), sizes, lambda size: size)
    assert [thread == mine for thread in threads] == [True, False, True, False]
