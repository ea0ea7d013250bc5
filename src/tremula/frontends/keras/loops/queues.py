"""Queues between a script and its loop: batches to the device, results from it."""

from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from tremula.frontends.keras.enums import IPUOutfeedMode
from tremula.frontends.keras.errors import keras_error


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


class IPUOutfeedQueue:
    """Results of the rounds of a loop: `enqueue` in it, `dequeue` behind it."""

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
        self._recorded: list[object] | None = None  # what a round enqueues while it is recorded

    def enqueue(self, tensors: object) -> None:
        """Give results of a round to the script."""
        if self._recorded is None:
            self._rounds.append(keras.tree.map_structure(_array, tensors))
        elif self._recorded:
            raise keras_error("a loop enqueues once in each round.", hint="enqueue a tuple instead")
        else:
            self._recorded.append(tensors)

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


def _array(value: object) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(value))
