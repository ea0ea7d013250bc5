"""poptorch.AsynchronousDataAccessor: a process loads the next batches while this one computes."""

import atexit
import contextlib
import multiprocessing
import os
import pickle
import weakref
from collections.abc import Sized
from copy import copy
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn, cast

import torch

from tremula.base.tracing import span
from tremula.frontends.poptorch.data.async_ring import BatchRing, make_ring, send
from tremula.frontends.poptorch.data.async_worker import CHANNEL, LoadingTask, RandomState, load
from tremula.frontends.poptorch.enums import SharingStrategy
from tremula.frontends.poptorch.exceptions import Error, createPoptorchError
from tremula.frontends.poptorch.inputs.arguments import Structure, _parsers, put_together
from tremula.frontends.poptorch.logging import LOGGER
from tremula.vision.trace import recorder as trace

__all__ = ["AsynchronousDataAccessor", "poptorchAtExit"]

STOP_S = 0.5
TERMINATE_S = 10.0
START_METHODS = {
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
}
FAILED_TO_START = "AsynchronousDataAccessor: worker thread failed to start"
GUARD_HINT = (
    'A script that loads data in another process needs `if __name__ == "__main__":` around its '
    "main part, because that process imports the script."
)

_accessors: "weakref.WeakSet[AsynchronousDataAccessor]" = weakref.WeakSet()


class AsynchronousDataAccessor:
    """Iterate over a data set that another process reads ahead.

    The process fills a ring of `buffer_size` batches in shared memory. What an iteration returns
    are views of that ring, **overwritten by later iterations**: clone what you want to keep.

    * `dataset`: any iterable, or a `DataLoader` that is not asynchronous already. Its elements are
      tensors, tuples, lists or dicts of tensors, or objects with a registered parser. All have the
      shapes of the first one; only dimension 0 may be shorter. A tensor of another type is
      converted to that of the first one; where those are whole numbers, no value may change.
    * `miss_sleep_time_in_ms`: accepted for existing scripts. Waiting for a batch blocks in the
      kernel, so there is no sleep whose length would matter.
    * `load_indefinitely`: at the end of the data set continue with the next epoch at once.
    * `early_preload`: fill the ring now, not when the first iteration begins.
    * `sharing_strategy`: how the process starts. `ForkServer`, `SharedMemory` and `FileSystem`
      import the script again, which needs its `__main__` guard; `Fork` does not. `FileSystem` puts
      the ring into a temporary file instead of shared memory.
    * `rebatched_size`: join elements along dimension 0 to batches of this size.
    """

    def __init__(
        self,
        dataset: object,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
    ):
        if getattr(dataset, "_accessor", None) is not None:
            raise createPoptorchError(
                "The DataLoader is already asynchronous (its mode is Async or AsyncRebatched): "
                "iterate over it, or give AsynchronousDataAccessor one in mode Sync."
            )
        _check_positive("buffer_size", buffer_size)
        if rebatched_size is not None:
            _check_positive("rebatched_size", rebatched_size)
        if miss_sleep_time_in_ms < 0:
            raise createPoptorchError(
                f"miss_sleep_time_in_ms must not be negative: got {miss_sleep_time_in_ms}."
            )
        self._dataset = dataset = _detached(dataset)
        self._rebatched_size = rebatched_size
        self._keeps_short_batch = rebatched_size is not None and _keeps_short_batch(dataset)
        strategy = SharingStrategy(sharing_strategy)
        task = LoadingTask(
            dataset=dataset,
            n_slots=buffer_size,
            rebatched_size=rebatched_size,
            keeps_short_batch=self._keeps_short_batch,
            early_preload=early_preload,
            load_indefinitely=load_indefinitely,
            random_state=RandomState.current(),
            tensor_sharing=_tensor_sharing(strategy),
            start_method=multiprocessing.get_start_method(),
            parsers=_pickled_parsers(),
            trace=trace.current_request(),
        )
        self._epoch = 0
        self._is_in_epoch = False
        self._is_at_end = False
        self._slot: int | None = None
        self._worker = LoadingProcess(task, strategy)
        # Not at exit: poptorchAtExit does it then, before multiprocessing waits for its children.
        weakref.finalize(self, self._worker.stop).atexit = False
        _accessors.add(self)

    def terminate(self) -> None:
        """Stop the loading process. Tensors handed out stay valid. May be called again."""
        self._worker.stop()

    def __len__(self) -> int:
        if self._rebatched_size is None:
            return len(self._dataset)
        n_elements = n_rows_of(self._dataset)
        n_full, n_left = divmod(n_elements, self._rebatched_size)
        return n_full + (1 if n_left and self._keeps_short_batch else 0)

    def __iter__(self) -> "AsynchronousDataAccessor":
        """Begin an epoch. Leaving the one before early is fine: the data set starts again."""
        if self._is_in_epoch or self._is_at_end:
            self._epoch += 1
            self._is_in_epoch = self._is_at_end = False
        self._worker.request(self._epoch)
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        if self._is_at_end:
            raise StopIteration
        self._worker.request(self._epoch)
        if self._worker.n_slots == 1:
            self._free_slot()  # otherwise there is no room for the next batch
        while True:
            with span(CHANNEL, "wait for batch"):
                kind, epoch, *rest = self._worker.receive()
            if epoch < self._epoch:
                if kind == "ready":
                    self._worker.free(rest[0])
            elif kind == "ready":
                return self._batch(*rest)
            elif kind == "end":
                # The last batch stays as it is until another epoch begins.
                self._is_in_epoch, self._is_at_end = False, True
                raise StopIteration
            else:
                self._is_in_epoch = True
                _reraise(*rest)

    def _batch(self, slot: int, n_rows: list[int] | None) -> Any:  # noqa: ANN401
        self._free_slot()
        self._slot, self._is_in_epoch = slot, True
        return self._worker.batch(slot, n_rows)

    def _free_slot(self) -> None:
        if self._slot is not None:
            self._worker.free(self._slot)
            self._slot = None


class LoadingProcess:
    """The parent's side of the loading process: starts it, talks to it, ends it."""

    def __init__(self, task: LoadingTask, strategy: SharingStrategy):
        self.n_slots = task.n_slots
        self._owner_pid = os.getpid()
        self._is_stopped = False
        self._wanted_epoch = -1
        self._connection, self._process = _start(task, strategy)
        LOGGER.debug("AsynchronousDataAccessor worker process: %d", self._process.pid)
        try:
            self._structure, self._data_buffers = self._agree_on_memory(strategy)
            self._first: tuple[Any, ...] | None = self._receive_at_start("ready")
        except BaseException:
            self.stop()
            raise

    def request(self, epoch: int) -> None:
        """Ask for an epoch, once."""
        if epoch > self._wanted_epoch:
            self._send(("start", epoch))
            self._wanted_epoch = epoch

    def free(self, slot: int) -> None:
        self._send(("free", slot))

    def receive(self) -> tuple[Any, ...]:
        """The next message about a batch, an end or an error; waits for it."""
        if self._first is not None and not self._is_stopped:
            message, self._first = self._first, None
            return message
        try:
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error

    def batch(self, slot: int, n_rows: list[int] | None) -> Any:  # noqa: ANN401
        self._data_buffers.indices_mem[slot] = False
        return put_together(self._structure, iter(self._data_buffers.read(slot, n_rows)))

    def stop(self) -> None:
        """End the process, gracefully if possible. Does nothing in a forked copy of this object."""
        if self._is_stopped or os.getpid() != self._owner_pid:
            return
        self._is_stopped = True
        with contextlib.suppress(OSError):
            send(self._connection, ("stop",))
        self._process.join(STOP_S)
        if self._process.is_alive():
            self._process.terminate()  # it is in the middle of an element: this interrupts it
            self._process.join(TERMINATE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()

    def _agree_on_memory(self, strategy: SharingStrategy) -> tuple[Structure, BatchRing]:
        _, layout, structure = self._receive_at_start("layout")
        ring, path = make_ring(layout, strategy is SharingStrategy.FileSystem)
        try:
            self._send(("memory", path))
            self._receive_at_start("mapped")
        finally:
            path.unlink()
        return pickle.loads(structure), ring  # from our own child, so it is safe to unpickle

    def _receive_at_start(self, expected: str) -> tuple[Any, ...]:
        try:
            message = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(STOP_S)
            raise createPoptorchError(
                f"{FAILED_TO_START}: it ended with exit code {self._process.exitcode} before it "
                f"loaded anything. {GUARD_HINT}"
            ) from error
        if message[0] == "failed":
            # Logged too: a script may catch the error, and then the reason would be lost.
            LOGGER.error("AsynchronousDataAccessor worker failed:\n%s", message[1])
            raise createPoptorchError(f"{FAILED_TO_START}.\n{message[1]}")
        assert message[0] == expected, f"expected the message {expected}, got {message[0]}"
        return message

    def _send(self, message: tuple[Any, ...]) -> None:
        try:
            send(self._connection, message)
        except OSError as error:
            raise self._ended() from error

    def _ended(self) -> Error:
        if self._is_stopped:
            return createPoptorchError(
                "The AsynchronousDataAccessor has been terminated: make another one to iterate."
            )
        self._process.join(STOP_S)
        return createPoptorchError(
            "The process of AsynchronousDataAccessor ended unexpectedly, with exit code "
            f"{self._process.exitcode}."
        )


def poptorchAtExit() -> None:  # noqa: N802
    """Stop every loading process; runs by itself when Python exits."""
    for accessor in list(_accessors):
        accessor.terminate()


# Handlers run last in, first out: this one before that of multiprocessing, which would wait for
# the processes forever.
atexit.register(poptorchAtExit)


def _start(task: LoadingTask, strategy: SharingStrategy) -> tuple[Connection, BaseProcess]:
    method = START_METHODS[strategy]
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        _preload_in_fork_server()
    ours, theirs = context.Pipe()
    inherited = ours if method == "fork" else None
    # Not a daemon: a DataLoader in it may have workers.
    process = context.Process(  # pyright: ignore[reportAttributeAccessIssue]
        target=load, args=(theirs, task, inherited), name="AsynchronousDataAccessor"
    )
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(task.tensor_sharing)
    try:
        process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        ours.close()
        raise createPoptorchError(
            f"{FAILED_TO_START}: the data set cannot be sent to another process ({error}). Define "
            "its classes and functions at the top of a module, or use SharingStrategy.Fork."
        ) from error
    except ValueError as error:
        ours.close()
        raise createPoptorchError(
            f"{FAILED_TO_START}: {error}. A data set of many separate tensors needs "
            "SharingStrategy.FileSystem or SharingStrategy.Fork."
        ) from error
    finally:
        theirs.close()
        torch.multiprocessing.set_sharing_strategy(before)
    return ours, process


def _preload_in_fork_server() -> None:
    """Make the fork server import torch once, unless the script chose what it preloads."""
    server = forkserver._forkserver
    if getattr(server, "_preload_modules", None) == ["__main__"]:
        server.set_forkserver_preload(["__main__", load.__module__])


def _tensor_sharing(strategy: SharingStrategy) -> str:
    if strategy is SharingStrategy.FileSystem:
        return "file_system"
    return torch.multiprocessing.get_sharing_strategy()


def _pickled_parsers() -> tuple[bytes, ...]:
    """Parsers for the loading process, except those that cannot be pickled: of no use there."""
    pickled = []
    for kind_and_parser in _parsers.items():
        with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError):
            pickled.append(pickle.dumps(kind_and_parser))
    return tuple(pickled)


def _detached(dataset: object) -> Any:  # noqa: ANN401
    """A DataLoader without its workers, which belong to this process, and without its owner."""
    if not isinstance(dataset, torch.utils.data.DataLoader):
        return dataset
    loader = copy(dataset)
    loader._iterator = None
    return loader


def _keeps_short_batch(dataset: object) -> bool:
    drops_last = getattr(dataset, "drop_last", True)
    return not getattr(dataset, "drops_last_combined", drops_last)


def n_rows_of(dataset: Any) -> int:  # noqa: ANN401
    """How many rows the batches of a data set have together."""
    if not isinstance(dataset, torch.utils.data.DataLoader):
        return len(dataset)
    if dataset.batch_size is None:
        return _n_rows_of_sampler(dataset)
    is_iterable = isinstance(dataset.dataset, torch.utils.data.IterableDataset)
    n_elements = len(cast(Sized, dataset.dataset if is_iterable else dataset.sampler))
    return n_elements - n_elements % dataset.batch_size if dataset.drop_last else n_elements


def _n_rows_of_sampler(loader: torch.utils.data.DataLoader) -> int:
    """The rows of an epoch without `batch_size`; only torch's own samplers make short batches."""
    sampler: Any = loader.batch_sampler
    size = getattr(sampler, "batch_size", None)
    if size is None:
        return len(loader)
    is_torch = isinstance(sampler, torch.utils.data.BatchSampler) and not sampler.drop_last
    return len(cast(Sized, sampler.sampler)) if is_torch else len(sampler) * size


def _check_positive(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise createPoptorchError(f"{name} must be a positive integer: got {value!r}.")


def _reraise(pickled: bytes | None, text: str) -> NoReturn:
    """Raise what the data set raised, as its own class if possible."""
    wrapper = None
    if pickled is not None:
        with contextlib.suppress(pickle.UnpicklingError, AttributeError, ImportError):
            wrapper = pickle.loads(pickled)
    if wrapper is None:
        raise createPoptorchError(f"The data set failed in its own process:\n{text}")
    if issubclass(wrapper.exc_type, Error):
        raise createPoptorchError(wrapper.exc_msg)
    wrapper.reraise()
    raise AssertionError("reraise always raises")
