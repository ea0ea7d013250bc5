"""The loading process of AsynchronousDataAccessor: walks a data set and fills the ring.

Messages to it:    ("start", epoch)   the parent wants this epoch, whatever is being loaded
                   ("free", slot)     the parent no longer needs this slot
                   ("stop",)
Messages from it:  ("layout", RingLayout, structure)     answered by ("memory", path)
                   ("mapped",)                           the file at path may be removed
                   ("ready", epoch, slot, rows)          a batch; rows is None where it is full
                   ("end", epoch)
                   ("error", epoch, exception, traceback)
                   ("failed", traceback)                 no first batch: the process ends
"""

import atexit
import contextlib
import multiprocessing
import os
import pickle
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import numpy as np
import torch
from torch._utils import ExceptionWrapper

from tremula.base.tracing import span
from tremula.frontends.poptorch.data.async_ring import BatchRing, open_ring, ring_layout, send
from tremula.frontends.poptorch.data.batch_structures import structure_and_tensors, tensors_like
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.inputs.arguments import Structure, registerCustomArgParser
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.profiling import timed_batches
from tremula.vision.trace import recorder as trace

__all__ = ["LoadingTask", "RandomState", "load"]

PARENT_CHECK_S = 1.0
LEAVE_S = 10.0
CHANNEL = "poptorch.AsynchronousDataAccessor"  # of the system trace


@dataclass(frozen=True, slots=True)
class RandomState:
    """The generators of a process. The loading process starts with its parent's, like a fork."""

    torch_state: torch.Tensor
    python_state: Any
    numpy_state: Any

    @classmethod
    def current(cls) -> "RandomState":
        return cls(torch.get_rng_state(), random.getstate(), np.random.get_state())  # noqa: NPY002

    def restore(self) -> None:
        torch.set_rng_state(self.torch_state)
        random.setstate(self.python_state)
        np.random.set_state(self.numpy_state)  # noqa: NPY002 — data sets use the global one


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingTask:
    """What to load, and how. It travels to the loading process once."""

    dataset: Any
    n_slots: int
    rebatched_size: int | None
    keeps_short_batch: bool
    early_preload: bool
    load_indefinitely: bool
    random_state: RandomState
    tensor_sharing: str
    start_method: str
    parsers: tuple[bytes, ...]
    trace: trace.TraceRequest | None


class Restart(Exception):
    """The parent wants a later epoch than the one being loaded."""


def load(connection: Connection, task: LoadingTask, inherited: Connection | None) -> None:
    """The main function of the loading process."""
    if inherited is not None:
        inherited.close()  # a fork holds the parent's end too, and would never see it closed
    # An interrupt from the keyboard reaches all processes: the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    torch.set_num_threads(1)  # as in torch's own workers; the cores belong to the parent
    torch.multiprocessing.set_sharing_strategy(task.tensor_sharing)
    # Workers of a DataLoader start as they would in the parent, not as this process did: another
    # fork server would import torch again.
    multiprocessing.set_start_method(task.start_method, force=True)
    _watch_parent()
    task.random_state.restore()
    if task.trace is not None:
        task.trace.start()
    for pickled in task.parsers:
        # A class that cannot be imported here is not one that this data set makes.
        with contextlib.suppress(AttributeError, ImportError):
            registerCustomArgParser(*pickle.loads(pickled))
    # EOF and the like: the parent has ended, so there is no process to report to.
    gone = (EOFError, BrokenPipeError, ConnectionResetError)
    with contextlib.suppress(SystemExit, *gone), torch.no_grad():
        Loader(connection, task).run()
    trace.stop()
    # A spawned interpreter would now spend a second on unloading torch; a forked one never does.
    atexit.register(os._exit, 0)


def _leave(signal_number: int, _frame: object) -> NoReturn:
    # Only once: a second signal must not interrupt the clean-up.
    signal.signal(signal_number, signal.SIG_IGN)
    sys.exit(0)


class Loader:
    """The state of the loading process: its epoch, the free slots, the slot being filled."""

    def __init__(self, connection: Connection, task: LoadingTask):
        self.connection = connection
        self.task = task
        self.ring: BatchRing | None = None
        self.structure: Structure | None = None
        self.converted: set[tuple[int, torch.dtype]] = set()  # what was said to be converted
        self.free_slots: deque[int] = deque()
        self.slot: int | None = None
        self.n_rows_filled = 0
        self.n_published = 0
        self.epoch = 0
        self.wanted_epoch = -1

    def run(self) -> None:
        """Load one epoch after the other, as far as the parent wants them."""
        while True:
            may_go_on = self._load_epoch()
            if self.n_published == 0:
                return
            self._take_back_slot()
            self.epoch += 1
            while self.wanted_epoch < self.epoch and not may_go_on:
                self._handle(self.connection.recv())

    def _load_epoch(self) -> bool:
        """Load an epoch; returns whether the next one may be loaded without a request."""
        try:
            self._write_all()
        except Restart:
            return True
        except Exception as error:  # noqa: BLE001 — whatever a data set raises goes to the parent
            self._send_error(error)
            return False
        send(self.connection, ("end", self.epoch))
        return self.task.load_indefinitely

    def _write_all(self) -> None:
        size = self.task.rebatched_size
        for element in timed_batches(CHANNEL, "load batch", self.task.dataset):
            tensors = self._tensors_of(element)
            for piece in [tensors] if size is None else self._pieces(tensors, size):
                self._write(piece)
            self._handle_waiting_messages()
        if self.n_rows_filled and self.task.keeps_short_batch:
            self._publish_short()
        if self.n_published == 0:
            raise createPoptorchError(self._nothing_loaded())

    def _tensors_of(self, element: object) -> list[torch.Tensor]:
        if self.structure is None:
            self.structure, tensors = structure_and_tensors(element)
            return tensors
        return tensors_like(element, self.structure)

    def _pieces(self, tensors: list[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
        """An element, cut where it crosses the end of a batch of `size` rows."""
        counts = {len(tensor) if tensor.ndim else None for tensor in tensors}
        if len(counts) != 1 or None in counts:
            raise createPoptorchError(
                "Rebatching needs tensors with the same first dimension: got the shapes "
                + ", ".join(str(list(tensor.shape)) for tensor in tensors)
            )
        begin, n_rows = 0, len(tensors[0])
        while begin < n_rows:
            end = min(n_rows, begin + size - self.n_rows_filled)
            yield [tensor[begin:end] for tensor in tensors]
            begin = end

    def _write(self, piece: list[torch.Tensor]) -> None:
        """Put a piece into the slot being filled; hand the slot over when it is full."""
        if self.ring is None:
            self._agree_on_memory(piece)
        ring = self.ring
        assert ring is not None, "the memory was agreed on"
        if self.slot is None:
            self.slot = self._free_slot()
        self._check_fits(piece)
        with span(CHANNEL, "write batch"):
            ring.write(self.slot, piece, self.n_rows_filled)
        size = self.task.rebatched_size
        if size is None:
            n_rows = [len(tensor) if tensor.ndim else 1 for tensor in piece]
            full = [shape.shape[0] if shape.shape else 1 for shape in ring.layout.tensors]
            self._publish(None if n_rows == full else n_rows)
        else:
            self.n_rows_filled += len(piece[0])
            if self.n_rows_filled == size:
                self._publish(None)

    def _agree_on_memory(self, first: list[torch.Tensor]) -> None:
        layout = ring_layout(first, self.task.n_slots, self.task.rebatched_size)
        # As plain bytes: the tensors of an object with a parser go by value, not as shared memory.
        send(self.connection, ("layout", layout, pickle.dumps(self.structure)))
        while self.ring is None:
            message = self.connection.recv()
            if message[0] == "memory":
                self.ring = open_ring(layout, message[1])
            else:
                self._handle(message)
        self.free_slots.extend(range(self.task.n_slots))
        send(self.connection, ("mapped",))

    def _check_fits(self, piece: list[torch.Tensor]) -> None:
        assert self.ring is not None, "the memory was agreed on"
        for index, (tensor, place) in enumerate(zip(piece, self.ring.layout.tensors, strict=True)):
            shape = tuple(tensor.shape)
            fits = len(shape) == len(place.shape) and shape[1:] == place.shape[1:]
            if not (fits and shape[:1] <= place.shape[:1]):
                raise createPoptorchError(
                    f"Tensor {index} of the data changed: expected {place.dtype} of shape "
                    f"{list(place.shape)} as in the first batch, got {tensor.dtype} of shape "
                    f"{list(shape)}. Only dimension 0 may become shorter."
                )
            if tensor.dtype != place.dtype:
                self._check_conversion(index, tensor, place.dtype)

    def _check_conversion(self, index: int, tensor: torch.Tensor, dtype: torch.dtype) -> None:
        """A float may be rounded, whole numbers and complex ones must not lose anything."""
        is_rounded = dtype.is_floating_point and not tensor.is_complex()
        if not is_rounded and not torch.equal(tensor.to(dtype).to(tensor.dtype), tensor):
            raise createPoptorchError(
                f"Tensor {index} of the data changed its type: the first batch has {dtype}, and"
                f" values of this one, {tensor.dtype}, cannot be converted to that without a loss."
                " Give all batches the same type."
            )
        if (index, tensor.dtype) not in self.converted:
            self.converted.add((index, tensor.dtype))
            LOGGER.warning(
                "Tensor %d of the data changed its type from %s to %s: it is converted to that of "
                "the first batch.",
                index,
                dtype,
                tensor.dtype,
            )

    def _publish(self, n_rows: Sequence[int] | None) -> None:
        assert self.ring is not None, "the memory was agreed on"
        self.ring.indices_mem[self.slot] = True
        send(self.connection, ("ready", self.epoch, self.slot, n_rows))
        self.slot, self.n_rows_filled = None, 0
        self.n_published += 1

    def _publish_short(self) -> None:
        assert self.ring is not None, "the memory was agreed on"
        self._publish([self.n_rows_filled] * len(self.ring.layout.tensors))

    def _free_slot(self) -> int:
        """The next free slot. Before the first epoch only one is filled, except on request."""
        while True:
            is_asked = self.wanted_epoch >= 0 or self.task.early_preload or not self.n_published
            if is_asked and self.free_slots:
                return self.free_slots.popleft()
            with span(CHANNEL, "wait until batches are used"):
                message = self.connection.recv()
            self._handle(message)

    def _take_back_slot(self) -> None:
        if self.slot is not None:
            self.free_slots.append(self.slot)
        self.slot, self.n_rows_filled = None, 0

    def _handle_waiting_messages(self) -> None:
        while self.connection.poll():
            self._handle(self.connection.recv())

    def _handle(self, message: tuple[Any, ...]) -> None:
        if message[0] == "free":
            self.free_slots.append(message[1])
        elif message[0] == "start":
            self.wanted_epoch = message[1]
            if self.wanted_epoch > self.epoch:
                raise Restart
        else:
            _leave(signal.SIGTERM, None)

    def _send_error(self, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        if self.n_published == 0:
            send(self.connection, ("failed", text))
            return
        wrapper = ExceptionWrapper(
            (type(error), error, error.__traceback__),
            where="in the process of AsynchronousDataAccessor",
        )
        try:
            pickled = pickle.dumps(wrapper)
        except (pickle.PicklingError, AttributeError, TypeError):
            pickled = None  # a class that others cannot import: its text will have to do
        send(self.connection, ("error", self.epoch, pickled, text))

    def _nothing_loaded(self) -> str:
        explain = getattr(self.task.dataset, "explain_no_batch", None)  # of poptorch.DataLoader
        explanation = explain() if explain is not None else None
        if explanation is not None:
            return explanation
        if self.structure is None:
            return "The data set is empty."
        return f"The data set has less than {self.task.rebatched_size} elements: no full batch."


def _watch_parent() -> None:
    """Exit when the parent is gone, even in the middle of an element that takes an hour."""
    # Python 3.12 warns of forks in processes with threads. This thread has no lock to copy.
    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
    threading.Thread(target=_leave_after_parent, name="parent watch", daemon=True).start()


def _leave_after_parent() -> None:
    while not _parent_is_gone():
        pass
    main_thread = threading.main_thread().ident
    assert main_thread is not None, "the main thread has started"
    signal.pthread_kill(main_thread, signal.SIGTERM)
    time.sleep(LEAVE_S)
    os._exit(1)  # native code that does not return


def _parent_is_gone() -> bool:
    """Whether the parent has ended; checks for a while.

    Another child of the parent may hold the pipe to it open, so its state alone is not enough.
    """
    parent = parent_process()
    if parent is None or parent.pid is None or wait([parent.sentinel], PARENT_CHECK_S):
        return True
    try:
        os.kill(parent.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # the process exists, under another user
    return False
