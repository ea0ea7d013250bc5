"""Jobs in processes of their own: as many at a time as asked, results as they come."""

import multiprocessing as mp
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
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


def results_of(
    run: Run, jobs: Iterable[Job], n_workers: int | None = None
) -> Iterator[tuple[Job, Any]]:
    """Yields (job, result) as results come; an error in a job is raised here.

    Where processes can be forked, jobs see all of this process's memory, and leave it alone.
    Elsewhere, and where PyTorch cannot follow, they run here, one after another. Leaving the loop
    ends what still runs.
    """
    if not can_fork():
        for job in jobs:
            yield job, run(job)
        return
    listed = list(jobs)
    limit = n_workers or default_workers()
    workers = [_start(run, listed) for _ in range(min(limit, len(listed)))]
    waiting, at = list(range(len(listed)))[::-1], {}
    try:
        for _, connection in workers:
            at[connection] = _next_job(connection, waiting)
        while at:
            for connection in wait(list(at)):
                number = at.pop(connection)  # pyright: ignore[reportArgumentType]
                yield listed[number], _received(connection)  # pyright: ignore[reportArgumentType]
                if waiting:
                    at[connection] = _next_job(connection, waiting)  # pyright: ignore[reportArgumentType]
    finally:
        for process, connection in workers:
            process.terminate()
            process.join()
            connection.close()


def default_workers() -> int:
    """One for each core, as far as there is memory for what they compile."""
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(os.cpu_count() or 1, n_bytes // N_BYTES_OF_A_JOB))


def can_fork() -> bool:
    """Whether jobs run in processes of their own.

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


def _next_job(connection: Connection, waiting: list[int]) -> int:
    number = waiting.pop()
    connection.send(number)
    return number


def _start(run: Run, jobs: list) -> tuple[BaseProcess, Connection]:
    context = mp.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(run, jobs, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _work(run: Run, jobs: list, connection: Connection) -> None:
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    while True:
        number = connection.recv()
        try:
            answer = "done", run(jobs[number])
        except Exception:  # noqa: BLE001 - whatever it is, the other side raises it
            answer = "failed", traceback.format_exc()
        connection.send(answer)


def _received(connection: Connection) -> Any:  # noqa: ANN401 - what a job gives
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
