"""Jobs in separate processes, a number of them at a time, with results as they come."""

import multiprocessing as mp
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import torch

from tremula.base.errors import PoplarError

# What compiling a large model takes: BERT-Large's training over four chips.
N_BYTES_OF_A_JOB = 8 * 2**30
Job = TypeVar("Job")
Run = Callable[[Job], Any]


class WorkerFailed(PoplarError):
    """A process that computed a job ended without a result."""


class WorkerKilled(WorkerFailed):
    """A process that computed a job was killed: most often, because memory ran out."""


@dataclass(frozen=True)
class WorkerLimits:
    """What jobs in separate processes may take: bytes each, seconds all together."""

    n_bytes: int | None = None
    seconds: float | None = None


NO_LIMITS = WorkerLimits()


@dataclass(frozen=True)
class Stopped:
    """The result of a job that would have passed a limit."""

    why: str
    was_late: bool = False  # it had no more time, or else no more memory


def results_of(
    run: Run, jobs: Iterable[Job], n_workers: int | None = None, limits: WorkerLimits = NO_LIMITS
) -> Iterator[tuple[Job, Any]]:
    """Yields (job, result) as results come; an error in a job is raised here.

    Where processes can be forked, jobs see all of this process's memory, and leave it alone.
    Elsewhere, and where PyTorch cannot follow, they run here, one after another, without limits.
    A job is taken when a process is free for it: `jobs` can follow from results. Leaving the loop
    ends what still runs.
    """
    if not can_fork():
        for job in jobs:
            yield job, run(job)
        return
    workers: list[_Worker] = []
    try:
        yield from _shared_out(run, iter(jobs), n_workers or default_workers(), limits, workers)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process, and the job that it is at."""

    def __init__(self, run: Run, limits: WorkerLimits):
        context = mp.get_context("fork")
        self.connection, theirs = context.Pipe()
        arguments = (run, limits.n_bytes, theirs)
        self.process = context.Process(target=_work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.job: Any = None

    def begin(self, job: object) -> None:
        self.job = job
        self.connection.send(job)

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.connection.close()


def _shared_out(
    run: Run, jobs: Iterator[Job], most: int, limits: WorkerLimits, workers: list[_Worker]
) -> Iterator[tuple[Job, Any]]:
    """Fills `workers` as there are jobs for them."""
    end = None if limits.seconds is None else time.monotonic() + limits.seconds
    at: dict[Any, _Worker] = {}

    def begin(job: Job, worker: _Worker | None = None) -> None:
        if worker is None:
            workers.append(worker := _Worker(run, limits))
        worker.begin(job)
        at[worker.connection] = worker

    for job in islice(jobs, most):
        begin(job)
    while at:
        ready = wait(list(at), None if end is None else max(0.0, end - time.monotonic()))
        if not ready:
            yield from ((worker.job, _late(limits)) for worker in at.values())
            return
        for connection in ready:
            worker: _Worker | None = at.pop(connection)
            result = _received(worker.connection)
            job = worker.job
            if isinstance(result, Stopped):  # what it had is free for others
                workers.remove(worker)
                worker.end()
                worker = None
            yield job, result
            for job in islice(jobs, 1):
                begin(job, worker)


def _late(limits: WorkerLimits) -> Stopped:
    return Stopped(f"stopped: it was not done after {limits.seconds:,.0f} s", was_late=True)


def default_workers() -> int:
    """One for each core, as far as there is memory for what they compile."""
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(os.cpu_count() or 1, n_bytes // N_BYTES_OF_A_JOB))


def can_fork() -> bool:
    """Whether jobs run in separate processes.

    Where PyTorch has used threads for gradients, as it does with GPUs, it refuses to compute any
    in a forked process: a first one tries.
    """
    if not sys.platform.startswith("linux") or "fork" not in mp.get_all_start_methods():
        return False
    if "torch" not in sys.modules:
        return True
    trial = mp.get_context("fork").Process(target=_differentiate, daemon=True)
    trial.start()
    trial.join()
    return trial.exitcode == 0


def _differentiate() -> None:
    import torch

    try:
        torch.ones(1, requires_grad=True).sum().backward()
    except RuntimeError:
        os._exit(1)


def _work(run: Run, n_bytes: int | None, connection: Connection) -> None:
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    if n_bytes is not None:
        _limit_memory(n_bytes)
    while True:
        job = connection.recv()
        try:
            answer = "done", run(job)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side raises it
            answer = "failed", traceback.format_exc()
            if n_bytes is not None and is_out_of_memory(error):
                why = f"stopped: it takes more than {n_bytes / 2**30:.3g} GiB here"
                answer = "done", Stopped(why)
        connection.send(answer)


def _limit_memory(n_bytes: int) -> None:
    """Refuse this process more writable memory than that, beyond what it was born with."""
    import resource  # not on every system

    born_with = _writable_bytes()
    if born_with is not None:
        most = born_with + n_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _writable_bytes() -> int | None:
    """Of this process; what a fork shares with its parent is the parent's, but counts here."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    result = [1024 * int(line.split()[1]) for line in lines if line.startswith("VmData:")]
    return result[0] if result else None


def is_out_of_memory(error: BaseException | None) -> bool:
    """NumPy and Python raise MemoryError, PyTorch an error that says so; others may wrap it."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _received(connection: Connection) -> Any:  # noqa: ANN401 - what a job returns
    try:
        kind, value = connection.recv()
    except (EOFError, ConnectionError):
        raise WorkerKilled(
            "a job failed.\nThe process was killed.",
            hint="use fewer workers: they share this computer's memory",
        ) from None
    if kind == "done":
        return value
    raise WorkerFailed(f"a job failed.\n{value}".rstrip(), hint="run it by itself to see more")
