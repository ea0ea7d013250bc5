"""Threads and locks of a process, and what becomes of them in a forked one.

A forked process has a copy of its parent's memory and only the thread that forked. A lock that
another thread held stays locked in it for ever, and an executor waits for threads that are gone. So
locks of modules are made by `fork_safe`, and threads that a process shares are `SharedThreads`:

    _lock = fork_safe(threading.RLock())
    _threads = SharedThreads("tremula-fill", 8)
    _threads.submit(work)
"""

import ctypes
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
LockType = TypeVar("LockType")


def fork_safe(lock: LockType) -> LockType:
    """The lock, which is free in a forked process unless the thread that forked holds it.

    Locks and conditions of `threading` have what this calls, and use it at a fork themselves.
    """
    reinitialise: Callable[[], None] = getattr(lock, "_at_fork_reinit")  # noqa: B009

    def free() -> None:
        is_owned: Callable[[], bool] = getattr(lock, "_is_owned", lambda: False)
        if not is_owned():
            reinitialise()

    os.register_at_fork(after_in_child=free)
    return lock


# PyTorch's generators are of the process: one model draws at a time, with its own state, and the
# script's data loaders, which draw a seed, wait for the end of that.
TORCH_GENERATORS = fork_safe(threading.RLock())


class SharedThreads:
    """Threads that functions of a module share: started when needed, and again after a fork."""

    def __init__(self, name: str, n_threads: int):
        self._name, self._n_threads = name, n_threads
        self._executor: ThreadPoolExecutor | None = None
        self._lock = fork_safe(threading.Lock())
        os.register_at_fork(after_in_child=self._forget)

    def submit(self, work: Callable[..., Result], *args: object) -> Future[Result]:
        """Have a thread call work(*args)."""
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._n_threads, self._name)
            return self._executor.submit(work, *args)

    def run_all(self, calls: list[Callable[[], Result]]) -> list[Result]:
        """The results of all calls, the first of which this thread makes."""
        others = [self.submit(call) for call in calls[1:]]
        return [call() for call in calls[:1]] + [other.result() for other in others]

    def _forget(self) -> None:
        self._executor = None


def n_cores() -> int:
    """Threads this process may use: one a core it may run on, at most OMP_NUM_THREADS."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    stated = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]  # a list is one for each nesting
    return max(1, min(bound or 1, int(stated) if stated.isdigit() else sys.maxsize))


def reset_peak_bytes() -> None:
    """Let `peak_bytes` begin again, where the system can: Linux."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_bytes() -> int:
    """The most memory the process had, since the reset where there is one; 0 if not known."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    largest = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(largest[1]) * 1024 if largest else 0


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt, in glibc's malloc.h
_KEPT_BYTES = 2**30


def keep_freed_memory() -> bool:
    """Let this process use memory again that it has freed, instead of giving it back at once.

    Building a large program makes and frees many large columns, and each page that the system hands
    out costs a page fault. Returns whether the allocator can: glibc's can.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(name, _KEPT_BYTES) for name in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))


@contextmanager
def small_pages() -> Iterator[None]:
    """Let NumPy's arrays that are made in the block, by any thread, have pages of the usual size.

    On Linux, NumPy asks for huge pages for arrays of 4 MB and more. Most columns of a program are
    written once and soon freed: the system clears 2 MB for the first byte of each, which a virtual
    machine may have to get from its host first, in milliseconds. Small pages that were freed before
    are at hand. Where NumPy has no such setting, nothing changes.
    """
    with _PageSize.lock:
        _PageSize.n_small += 1
        if _PageSize.n_small == 1:
            _PageSize.was_huge = _ask_for_huge_pages(False)
    try:
        yield
    finally:
        with _PageSize.lock:
            _PageSize.n_small -= 1
            if _PageSize.n_small == 0:
                _ask_for_huge_pages(_PageSize.was_huge)


class _PageSize:
    """Of this process: how many blocks want small pages, and what NumPy asked for before them."""

    n_small, was_huge = 0, True
    lock = fork_safe(threading.Lock())


def _ask_for_huge_pages(is_on: bool) -> bool:
    """What NumPy asks for from now on; returns what it did before."""
    core = sys.modules.get("numpy._core.multiarray")
    setter: Callable[[bool], bool] = getattr(core, "_set_madvise_hugepage", lambda is_on: is_on)
    return setter(is_on)


def available_bytes() -> int:
    """Memory that new processes can have without taking it from others."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux: all there is
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    (kib,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return 1024 * kib
