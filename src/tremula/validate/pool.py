"""Rows predicted side by side in processes, as many as memory allows.

Each process takes one row at a time. If one dies (a row took all the memory), its row gets that as
its reason and a new process takes over: the other rows do not notice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tremula.base.processes import available_bytes, keep_freed_memory, small_pages
from tremula.validate.outcome import Outcome, predict
from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.table import find_workload

_CONTEXT = get_context("spawn")  # not fork: the parent may have threads
_ROWS_PER_PROCESS = 40  # then a new one: memory that rows left behind is given back


@dataclass(frozen=True, slots=True)
class PredictionTask:
    """A row to predict, and about how much memory that takes."""

    number: int  # in the file, from 1
    row: MeasuredRow
    gbytes: float


@dataclass(slots=True)
class _PredictionWorker:
    process: BaseProcess
    pipe: Connection
    n_rows: int = 0


@dataclass(slots=True)
class _PredictionPool:
    tasks: list[PredictionTask]
    n_jobs: int
    gbytes: float
    on_start: Callable[[PredictionTask], None]
    idle: list[_PredictionWorker] = field(default_factory=list)
    busy: dict[Connection, tuple[_PredictionWorker, PredictionTask]] = field(default_factory=dict)

    def run(self) -> Iterator[tuple[PredictionTask, Outcome]]:
        try:
            while self.tasks or self.busy:
                while self._next_fits():
                    self._start(self.tasks.pop(0))
                for pipe in wait(list(self.busy)):
                    yield self._finish(pipe)  # pyright: ignore[reportArgumentType]
        finally:
            for worker in (*self.idle, *(one for one, _ in self.busy.values())):
                worker.process.terminate()
                worker.process.join()

    def _next_fits(self) -> bool:
        """Memory limits how many run, but one always may."""
        if not self.tasks or len(self.busy) >= self.n_jobs:
            return False
        used = sum(task.gbytes for _, task in self.busy.values())
        return not self.busy or used + self.tasks[0].gbytes <= self.gbytes

    def _start(self, task: PredictionTask) -> None:
        worker = self.idle.pop() if self.idle else _new_worker()
        self.on_start(task)
        worker.pipe.send(task.row)
        worker.n_rows += 1
        self.busy[worker.pipe] = worker, task

    def _finish(self, pipe: Connection) -> tuple[PredictionTask, Outcome]:
        worker, task = self.busy.pop(pipe)
        try:
            outcome = pipe.recv()
        except EOFError:
            worker.process.join()
            reason = f"its process ended with {worker.process.exitcode}: too little memory?"
            return task, Outcome(reason=reason)
        if worker.n_rows < _ROWS_PER_PROCESS:
            self.idle.append(worker)
        else:
            pipe.close()
        return task, outcome


def predict_side_by_side(
    tasks: Sequence[PredictionTask], n_jobs: int, on_start: Callable[[PredictionTask], None]
) -> Iterator[tuple[PredictionTask, Outcome]]:
    """Outcomes as they come; rows that take most memory begin first."""
    ordered = sorted(tasks, key=lambda task: -task.gbytes)
    return _PredictionPool(ordered, n_jobs, available_bytes() / 2**30, on_start).run()


def _new_worker() -> _PredictionWorker:
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return _PredictionWorker(process, ours)


def _serve(pipe: Connection) -> None:
    """Predict row after row until the other end is closed."""
    keep_freed_memory()
    with small_pages():
        while True:
            try:
                row = pipe.recv()
            except (EOFError, KeyboardInterrupt):
                return
            pipe.send(predict(find_workload(row), row))
