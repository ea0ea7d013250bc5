"""Rows of many requests, run together in batches of a fixed size.

Everything but `run` happens on the event loop's thread. A batch starts when it is full, or when its
oldest row has waited for `max_delay_s` and nothing runs. While one runs, one more full batch may
wait for the thread, so that it never idles.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from tremula.serving.errors import unavailable
from tremula.serving.metrics import Metrics
from tremula.serving.program import ServedProgram
from tremula.serving.tensors import rows_of

_MOST_IN_FLIGHT = 2  # one runs, one waits for the thread
Done = Callable[[list[np.ndarray] | Exception], None]


@dataclass(slots=True, eq=False)
class Ticket:
    """A request in the queue: rows are taken from it, and results come back into `outputs`."""

    inputs: list[np.ndarray]
    done: Done
    arrived: float
    outputs: list[np.ndarray] = field(default_factory=list)
    n_taken: int = 0
    n_finished: int = 0
    is_over: bool = False  # answered, or the client has gone

    @property
    def n_rows(self) -> int:
        return rows_of(self.inputs)


@dataclass(frozen=True, slots=True)
class RequestPart:
    """Rows of a ticket at a place in a batch."""

    ticket: Ticket
    first: int  # in the ticket
    at: int  # in the batch
    n: int


class Batcher:
    """The queue in front of one program."""

    def __init__(
        self, program: ServedProgram, metrics: Metrics, *, max_delay_s: float, max_queue_rows: int
    ):
        self.program, self.metrics = program, metrics
        self.max_delay_s, self.max_queue_rows = max_delay_s, max_queue_rows
        self.n_waiting_rows = 0
        self._waiting: deque[Ticket] = deque()
        self._n_in_flight = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tremula-serving")
        self._timer: asyncio.TimerHandle | None = None
        self.loop = asyncio.get_running_loop()

    def raise_if_full(self, n_rows: int = 1) -> None:
        """Back-pressure: raises if `n_rows` more rows do not fit the queue."""
        if self.n_waiting_rows + n_rows > self.max_queue_rows:
            self.metrics.n_rejected += 1
            raise unavailable(
                f"the queue is full: {self.n_waiting_rows} of {self.max_queue_rows} rows wait, and "
                f"{n_rows} more do not fit; try again later"
            )

    def submit(self, inputs: list[np.ndarray], done: Done) -> Ticket:
        """Queue a request; `done` gets its outputs, or what went wrong, on the loop's thread."""
        n_rows = rows_of(inputs)
        self.raise_if_full(n_rows)
        ticket = Ticket(inputs, done, time.perf_counter())
        ticket.outputs = [
            np.empty((n_rows, *spec.shape), spec.dtype) for spec in self.program.outputs
        ]
        self._waiting.append(ticket)
        self.n_waiting_rows += n_rows
        self._start_what_can()
        return ticket

    def give_up(self, ticket: Ticket) -> None:
        """The client of a ticket has gone: rows that have not started never will."""
        if not ticket.is_over:
            ticket.is_over = True
            self.n_waiting_rows -= ticket.n_rows - ticket.n_taken
            ticket.n_taken = ticket.n_rows

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown(wait=True)

    # -- batches -----------------------------------------------------------------------------------

    def _start_what_can(self) -> None:
        size = self.program.batch_size
        while self.n_waiting_rows >= size and self._n_in_flight < _MOST_IN_FLIGHT:
            self._start()
        if not self.n_waiting_rows:
            self._drop_taken()
        elif self._n_in_flight == 0 and self._timer is None:
            waited = time.perf_counter() - self._oldest().arrived
            delay = max(0.0, self.max_delay_s - waited)
            self._timer = self.loop.call_later(delay, self._waited_enough)

    def _waited_enough(self) -> None:
        self._timer = None
        if self.n_waiting_rows and self._n_in_flight == 0:
            self._start()

    def _drop_taken(self) -> None:
        while self._waiting and self._waiting[0].n_taken == self._waiting[0].n_rows:
            self._waiting.popleft()

    def _oldest(self) -> Ticket:
        self._drop_taken()
        return self._waiting[0]

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        parts = self._take()
        self._n_in_flight += 1
        running = self.loop.run_in_executor(self._thread, self._run, parts)
        running.add_done_callback(lambda future: self._finished(parts, future))

    def _take(self) -> list[RequestPart]:
        parts: list[RequestPart] = []
        n_free = self.program.batch_size
        while n_free and self._waiting:
            ticket = self._waiting[0]
            n = min(n_free, ticket.n_rows - ticket.n_taken)
            if n:
                parts.append(
                    RequestPart(ticket, ticket.n_taken, self.program.batch_size - n_free, n)
                )
            ticket.n_taken += n
            n_free -= n
            self.n_waiting_rows -= n
            if ticket.n_taken == ticket.n_rows:
                self._waiting.popleft()
        return parts

    def _run(self, parts: list[RequestPart]) -> float:
        """On the other thread: fill a batch, run it, put rows of outputs into their tickets."""
        began = time.perf_counter()
        batch = self.program.zeros()
        for part in parts:
            for column, rows in zip(batch, part.ticket.inputs, strict=True):
                column[part.at : part.at + part.n] = rows[part.first : part.first + part.n]
        result = self.program.checked_run(batch)
        for part in parts:
            for rows, column in zip(part.ticket.outputs, result, strict=True):
                rows[part.first : part.first + part.n] = column[part.at : part.at + part.n]
        return time.perf_counter() - began

    def _finished(self, parts: list[RequestPart], future: "asyncio.Future[float]") -> None:
        self._n_in_flight -= 1
        error = future.exception()
        n_rows = sum(part.n for part in parts)
        self.metrics.batch(n_rows, 0.0 if error else future.result(), is_failure=bool(error))
        self._start_what_can()
        for part in parts:
            ticket = part.ticket
            ticket.n_finished += part.n
            if ticket.is_over or (error is None and ticket.n_finished < ticket.n_rows):
                continue
            if error is not None:
                self.give_up(ticket)
                failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
                ticket.done(failure)
            else:
                ticket.is_over = True
                ticket.done(ticket.outputs)
