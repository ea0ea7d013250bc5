"""The thread pool of native code: every part runs once, whatever threads and forks do."""

import os
import threading

import numpy as np
import pytest
from numba import carray, cfunc, types

from tremula.codelets.native import thread_pool

N_PARTS = 1000


@pytest.fixture(scope="module")
def count_part():
    """A job: adds 1 to the element of each part."""

    @cfunc(types.int64(types.CPointer(types.int64), types.int64, types.int64))
    def count(counts, part, n_parts):
        carray(counts, n_parts)[part] += 1
        return 0

    return count.address


def _runs_once(count_part, n_jobs=20, n_threads=3):
    counts = np.zeros(N_PARTS, np.int64)
    for _ in range(n_jobs):
        thread_pool.run_parts(count_part, counts.ctypes.data, N_PARTS, n_threads)
    return bool((counts == n_jobs).all())


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_every_part_runs_once(count_part, n_threads):
    """Jobs one after another, with and without helpers."""
    assert _runs_once(count_part, n_threads=n_threads)


def test_threads_share_the_pool(count_part):
    """Jobs of several threads at once: one gets the helpers, the others work alone."""
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(_runs_once(count_part))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_a_forked_process_has_helpers_again(count_part):
    """A child runs jobs after its parent did, also while a thread of the parent runs one."""
    assert _runs_once(count_part)
    ends = threading.Event()

    def keep_busy():
        while not ends.is_set():
            _runs_once(count_part)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        codes = [_exit_code_of_child(count_part) for _ in range(3)]
    finally:
        ends.set()
        busy.join()
    assert codes == [0] * 3
    assert _runs_once(count_part)


def _exit_code_of_child(count_part):
    child = os.fork()
    if child == 0:
        os._exit(0 if _runs_once(count_part) else 1)
    return os.waitpid(child, 0)[1]


def test_more_parts_than_the_pool_counts(count_part):
    """Jobs with too many parts for a word run on one thread."""
    counts = np.zeros(thread_pool.MAX_PARTS + 1, np.int64)
    thread_pool.run_parts(count_part, counts.ctypes.data, len(counts), 2)
    assert (counts == 1).all()
