"""Processes that run batches of seeds: as many as cores, replaced when they die or hang."""

import multiprocessing as mp
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.sharedctypes import Synchronized

from tools.fuzz.case import FAILED, MOST_SECONDS, SET_ASIDE, Case, examine, random_of
from tools.fuzz.kinds import kind_named
from tools.fuzz.run_log import Batch

BATCHES_PER_PROCESS = 60  # then a fresh one replaces it, so that a slow leak stays small
Report = tuple[int, str, str, Case | None]  # seed, signature, detail, the case if it is known


def run_batch(batch: Batch, current: "Synchronized | None" = None) -> list[Report]:
    """Run the seeds of a batch in this process, and fill in what became of them."""
    kind, failures = kind_named(batch.kind), []
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    cpu, wall = time.process_time(), time.monotonic()
    for seed in range(batch.first_seed, batch.first_seed + batch.n):
        if current is not None:
            current.value = seed
        case = kind.generate(random_of(batch.kind, seed))
        outcome = examine(kind, case)
        outcomes[outcome.status] += 1
        covered.update(kind.features(case))
        if outcome.status == SET_ASIDE:
            reasons[outcome.signature] += 1
        elif outcome.status != "passed":
            batch.failures.setdefault(outcome.signature, []).append(seed)
            failures.append((seed, outcome.signature, outcome.detail, case))
    batch.outcomes, batch.reasons, batch.covered = dict(outcomes), dict(reasons), dict(covered)
    batch.cpu_s, batch.wall_s = time.process_time() - cpu, time.monotonic() - wall
    return failures


@dataclass
class Worker:
    """A process, its pipe, and the batch it works on."""

    process: mp.process.BaseProcess
    pipe: Connection
    current: Synchronized
    batch: Batch | None = None
    n_batches: int = 0
    seed_since: tuple[int, float] = (-1, 0.0)


def run_batches(
    batches: Iterator[Batch], n_workers: int, done: Callable[[Batch, list[Report]], None]
) -> None:
    """Run batches in processes; `done` gets each with its failures."""
    context = mp.get_context("spawn")
    workers = [_start(context) for _ in range(n_workers)]
    try:
        active = [worker for worker in workers if _assign(worker, batches)]
        while active:
            ready = wait([worker.pipe for worker in active], timeout=5)
            for worker in list(active):
                if worker.pipe in ready or not worker.process.is_alive() or _hangs(worker):
                    done(*_result(worker))
                    active.remove(worker)
                    fresh = worker if _is_fresh(worker) else _replaced(context, worker, workers)
                    if _assign(fresh, batches):
                        active.append(fresh)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


def _start(context: mp.context.BaseContext) -> Worker:
    ours, theirs = context.Pipe()
    current = context.Value("q", -1)
    process = context.Process(target=_work, args=(theirs, current), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours, current)


def _work(pipe: Connection, current: Synchronized) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    while True:
        try:
            batch = pipe.recv()
        except EOFError:
            return
        failures = run_batch(batch, current)
        pipe.send((batch, failures))


def _assign(worker: Worker, batches: Iterator[Batch]) -> bool:
    batch = next(batches, None)
    if batch is None:
        return False
    worker.batch = batch
    worker.n_batches += 1
    worker.seed_since = (-1, time.monotonic())
    worker.pipe.send(batch)
    return True


def _result(worker: Worker) -> tuple[Batch, list[Report]]:
    """What a worker sent; of one that died, the seed that killed it and those before."""
    batch = worker.batch
    assert batch is not None
    try:
        if worker.pipe.poll():
            return worker.pipe.recv()
    except (EOFError, OSError):
        pass
    seed = max(int(worker.current.value), batch.first_seed)
    hangs = worker.process.is_alive()
    worker.process.kill()
    worker.process.join()
    signature = "a hang" if hangs else f"the process died ({worker.process.exitcode})"
    batch.n = seed - batch.first_seed + 1
    batch.outcomes, batch.failures = {FAILED: 1, "passed": batch.n - 1}, {signature: [seed]}
    return batch, [(seed, signature, "", None)]


def _hangs(worker: Worker) -> bool:
    """A case that does not even react to its time limit."""
    seed, since = worker.seed_since
    if worker.current.value != seed:
        worker.seed_since = (int(worker.current.value), time.monotonic())
        return False
    return time.monotonic() - since > 5 * MOST_SECONDS


def _is_fresh(worker: Worker) -> bool:
    return worker.process.is_alive() and worker.n_batches < BATCHES_PER_PROCESS


def _replaced(context: mp.context.BaseContext, worker: Worker, workers: list[Worker]) -> Worker:
    worker.process.kill()
    worker.process.join()
    fresh = _start(context)
    workers[workers.index(worker)] = fresh
    return fresh
