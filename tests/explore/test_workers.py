"""Jobs in processes of their own: results, errors, and a process that dies."""

import os
import signal

import pytest

from tremula.explore.workers import WorkerFailed, can_fork, results_of


def test_every_job_has_its_result():
    """Results come with their jobs, whatever the number of workers, in processes of their own."""
    found = dict(results_of(lambda n: (n * n, os.getpid()), range(5), 2))
    assert {n: square for n, (square, _) in found.items()} == {n: n * n for n in range(5)}
    if can_fork():
        assert os.getpid() not in {pid for _, pid in found.values()}
    assert list(results_of(abs, [], 2)) == []


@pytest.mark.skipif(not can_fork(), reason="jobs run in this process")
def test_failures_are_raised_here():
    """An error in a job is raised with its traceback; so is the end of a killed process."""
    with pytest.raises(WorkerFailed, match="ZeroDivisionError"):
        list(results_of(lambda n: 1 // n, [0], 1))
    with pytest.raises(WorkerFailed, match=r"The process was killed\.[\s\S]*use fewer workers"):
        list(results_of(lambda _: os.kill(os.getpid(), signal.SIGKILL), [0], 1))


@pytest.mark.skipif(not can_fork(), reason="jobs run in this process")
def test_leaving_ends_what_still_runs():
    """Who leaves the loop early leaves no process behind."""
    jobs = results_of(lambda n: (n, os.getpid()), range(3), 1)
    _, (_, pid) = next(jobs)
    jobs.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
