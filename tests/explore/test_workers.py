"""Jobs in separate processes: results, errors, and a process that dies."""

import os
import signal

import numpy as np
import pytest

from tremula.base.processes import available_bytes
from tremula.explore.workers import (
    Stopped,
    WorkerFailed,
    WorkerLimits,
    can_fork,
    is_out_of_memory,
    results_of,
)


def test_every_job_has_its_result():
    """Results come with their jobs, whatever the number of workers, in separate processes."""
    result = dict(results_of(lambda n: (n * n, os.getpid()), range(5), 2))
    assert {n: square for n, (square, _) in result.items()} == {n: n * n for n in range(5)}
    if can_fork():
        assert os.getpid() not in {pid for _, pid in result.values()}
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


@pytest.mark.skipif(not can_fork(), reason="jobs run in this process")
def test_a_job_that_takes_too_much_memory_is_stopped():
    """What a job may take is counted from what its process was born with; others have results."""
    held = np.ones(30_000_000)  # 240 MB of this process, which forked ones see
    sizes = (1_000, 100_000_000)
    result = dict(
        results_of(lambda n: np.ones(n).size, sizes, 1, WorkerLimits(n_bytes=200 * 2**20))
    )
    assert result[1_000] == 1_000
    assert result[100_000_000] == Stopped("stopped: it takes more than 0.195 GiB here")
    assert held.size == 30_000_000


@pytest.mark.skipif(not can_fork(), reason="jobs run in this process")
def test_what_is_not_done_in_time_is_stopped():
    """A job that would never end is stopped, and so is nothing that was done before."""
    result = dict(results_of(lambda _: signal.pause(), [0, 1], 2, WorkerLimits(seconds=0.01)))
    assert [stopped.was_late for stopped in result.values()] == [True, True]
    assert dict(results_of(abs, [-1], 1, WorkerLimits(seconds=600))) == {-1: 1}


@pytest.mark.skipif(not can_fork(), reason="jobs run in this process")
def test_jobs_follow_from_results():
    """A job is taken when a process is free: it can be what the last result was."""
    last = [1]

    def doubled():
        while last[0] < 10:
            yield last[0]

    for _, last[0] in results_of(lambda n: 2 * n, doubled(), 1):
        pass
    assert last == [16]


def test_memory_errors_are_found_behind_others():
    """An error that was raised from a MemoryError, or is PyTorch's, is one of memory."""
    wrapped = ValueError("wrapped")
    wrapped.__cause__ = MemoryError()
    assert is_out_of_memory(wrapped)
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert not is_out_of_memory(ValueError("no"))
    assert available_bytes() > 0
