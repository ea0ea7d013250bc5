"""Queues between a script and its loop: batches to the device, results from it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np

from tremula.base.context_values import set_inside
from tremula.frontends.keras.enums import IPUOutfeedMode
from tremula.frontends.keras.errors import keras_error
from tremula.ir.recording import active


class IPUInfeedQueue:
    """Batches of a data set, in order; a loop takes one in each round."""

    def __init__(self, dataset: Iterable[object], prefetch_depth: int = 1, **_details: object):
        if not isinstance(prefetch_depth, int) or prefetch_depth < 1:
            raise keras_error(
                f"prefetch_depth must be a whole number of at least 1; got {prefetch_depth!r}."
            )
        self.dataset, self.prefetch_depth = dataset, prefetch_depth
        self._batches: Iterator[object] = iter(dataset)
        self._stand_in: list[object] = []  # what a round gets while a loop is recorded

    @property
    def initializer(self) -> None:
        """Nothing has to be run: the queue is filled when it is made."""
        self._batches = iter(self.dataset)

    @property
    def deleter(self) -> None:
        """Nothing has to be run."""

    def __iter__(self) -> "IPUInfeedQueue":
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - a batch, as the data set has it
        if self._stand_in:
            return self._stand_in.pop()
        return next(self._batches)

    def take(self, n_batches: int) -> list[object]:
        """The next batches; an error if there are fewer."""
        result = []
        for batch in self._batches:
            result.append(batch)
            if len(result) == n_batches:
                return result
        raise keras_error(
            f"a loop of {n_batches} rounds met the end of its data set after {len(result)}"
            " batches.",
            hint="repeat() the data set, or run fewer rounds",
        )


class IPUIterator(IPUInfeedQueue):
    """`iter(data_set)` as loops take it."""


IPUOwnedIterator = IPUIterator


# What a step of a model has enqueued while it is recorded: queues and values.
_collected: ContextVar[list[tuple["IPUOutfeedQueue", object]] | None] = ContextVar(
    "enqueued_in_step", default=None
)


@contextmanager
def collecting() -> Iterator[list[tuple["IPUOutfeedQueue", object]]]:
    """Inside, layers, losses and metrics that enqueue add to this list."""
    values: list[tuple[IPUOutfeedQueue, object]] = []
    with set_inside(_collected, values):
        yield values


class IPUOutfeedQueue:
    """Results of the rounds of a loop: `enqueue` in it, `dequeue` behind it.

    Layers, losses and metrics of models may enqueue, too: there is a round for each step.
    """

    def __init__(
        self,
        outfeed_mode: IPUOutfeedMode = IPUOutfeedMode.ALL,
        buffer_depth: int = 1,
        **_details: object,
    ):
        if not isinstance(outfeed_mode, IPUOutfeedMode):
            raise keras_error(
                f"outfeed_mode must be IPUOutfeedMode.ALL or .LAST; got {outfeed_mode!r}."
            )
        self.outfeed_mode, self.buffer_depth = outfeed_mode, buffer_depth
        self._rounds: list[object] = []
        self._is_enqueued = False
        self._recorded: list[object] | None = None  # what a round enqueues while it is recorded

    def enqueue(self, tensors: object) -> None:
        """Give results of a round to the script."""
        if self.enqueued and (self._recorded is not None or _collected.get() is not None):
            raise keras_error(
                "a queue is enqueued once in each round.", hint="enqueue a tuple instead"
            )
        collected = _collected.get()
        if self._recorded is not None:
            self._recorded.append(tensors)
        elif collected is not None:
            collected.append((self, tensors))
            self._is_enqueued = True
        elif active() is not None:
            raise keras_error(
                "an optimiser of a compiled step cannot enqueue.",
                hint="enqueue in a layer, a loss or a metric; read weights in callbacks",
            )
        elif not _is_symbolic(tensors):  # a layer is also called to learn its output's shape
            self._rounds.append(keras.tree.map_structure(_array, tensors))

    def put(self, values: object) -> None:
        """Add the values of one round, as a compiled step computed them."""
        self._rounds.append(keras.tree.map_structure(_array, values))

    @property
    def enqueued(self) -> bool:
        """Whether a round that is being recorded, or was, enqueues here."""
        if self._recorded is not None:
            return bool(self._recorded)
        collected = _collected.get()
        if collected is not None:
            return any(queue is self for queue, _ in collected)
        return self._is_enqueued or bool(self._rounds)

    def dequeue(self) -> Any:  # noqa: ANN401 - arrays, as they were enqueued
        """What rounds enqueued since the last call, stacked; with LAST only the last of them."""
        rounds, self._rounds = self._rounds, []
        if not rounds:
            raise keras_error(
                "the outfeed queue is empty.", hint="dequeue after strategy.run of a loop"
            )
        if self.outfeed_mode is IPUOutfeedMode.LAST:
            return rounds[-1]
        return keras.tree.map_structure(lambda *parts: np.stack(parts), *rounds)

    def __iter__(self) -> Iterator[Any]:
        rounds, self._rounds = self._rounds, []
        return iter(rounds[-1:] if self.outfeed_mode is IPUOutfeedMode.LAST else rounds)

    def __len__(self) -> int:
        return len(self._rounds)

    @property
    def deleter(self) -> None:
        """Nothing has to be run."""


class ScopedIPUOutfeedQueue(IPUOutfeedQueue):
    """Does nothing: a queue ends with its last reference."""


def _is_symbolic(tensors: object) -> bool:
    leaves = keras.tree.flatten(tensors)
    return any(isinstance(t, keras.KerasTensor) or getattr(t, "is_meta", False) for t in leaves)


def _array(value: object) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(value))
