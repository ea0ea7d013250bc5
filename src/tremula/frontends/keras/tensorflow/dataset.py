"""`tf.data.Dataset`, as much of it as scripts in memory use: slices, order, batches, functions."""

import math
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data import Dataset as TorchDataset

from tremula.frontends.keras.errors import keras_error

# What an element is made of: the number of a row, or those of the rows of a batch.
Groups = Sequence[int | np.ndarray] | np.ndarray


class _BatchOfRows(TorchDataset):
    """Elements of a data set by number: rows of arrays, or batches of them."""

    def __init__(self, arrays: object, groups: Groups, functions: tuple[Callable, ...] = ()):
        self.arrays, self.groups, self.functions = arrays, groups, functions

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, number: int) -> object:
        rows = self.groups[number]
        element = keras.tree.map_structure(lambda array: array[rows], self.arrays)
        for function in self.functions:
            element = function(*element) if isinstance(element, tuple) else function(element)
            element = keras.tree.map_structure(keras.ops.convert_to_numpy, element)
        return element


class _Endless(IterableDataset):
    """Elements over and over."""

    def __init__(self, rows: _BatchOfRows):
        self.rows = rows

    def __iter__(self) -> Iterator[object]:
        while True:
            for number in range(len(self.rows)):
                yield self.rows[number]


class Dataset(DataLoader):
    """A data set in memory. Every method gives a new one."""

    def __init__(self, rows: _BatchOfRows, *, is_batched: bool = False, is_endless: bool = False):
        super().__init__(_Endless(rows) if is_endless else rows, batch_size=None)
        self._rows, self._is_batched, self._is_endless = rows, is_batched, is_endless

    @classmethod
    def from_tensor_slices(cls, tensors: object) -> "Dataset":
        """Elements are the rows of arrays."""
        arrays = keras.tree.map_structure(np.asarray, tensors)
        sizes = {len(array) for array in keras.tree.flatten(arrays)}
        if len(sizes) != 1:
            raise keras_error(
                f"from_tensor_slices needs arrays of equally many rows; got {sorted(sizes)}."
            )
        return cls(_BatchOfRows(arrays, np.arange(sizes.pop())))

    def batch(self, batch_size: int, drop_remainder: bool = False) -> "Dataset":
        """Elements are `batch_size` of the present ones, the last fewer unless it is dropped."""
        if self._is_batched or self._rows.functions:
            raise keras_error(
                "batch() comes before map() and only once here.",
                hint="write dataset.batch(n, drop_remainder=True).map(function)",
            )
        order = np.asarray(self._rows.groups)
        if self._is_endless:  # until a batch ends where the rows do
            order = np.tile(order, batch_size // math.gcd(batch_size, len(order)))
        ends = range(0, len(order), batch_size)
        groups = [order[i : i + batch_size] for i in ends]
        if drop_remainder and groups and len(groups[-1]) < batch_size:
            groups.pop()
        rows = _BatchOfRows(self._rows.arrays, groups)
        return Dataset(rows, is_batched=True, is_endless=self._is_endless)

    def map(self, function: Callable, num_parallel_calls: int | None = None) -> "Dataset":
        """Elements are what a function makes of the present ones."""
        del num_parallel_calls  # rows are made where they are used
        return self._with(self._rows.groups, (*self._rows.functions, function))

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool = False,
    ) -> "Dataset":
        """A data set with its elements in random order, drawn once."""
        del buffer_size  # everything is in memory
        if reshuffle_each_iteration:
            raise keras_error(
                "shuffle() draws one order here; reshuffle_each_iteration=True needs more.",
                hint="give arrays to fit(shuffle=True)",
            )
        order = np.random.default_rng(seed).permutation(len(self._rows.groups))
        return self._with([self._rows.groups[i] for i in order])

    def repeat(self, count: int | None = None) -> "Dataset":
        """The elements several times, or without end, as fit(steps_per_epoch=…) takes them."""
        if count is None or count < 0:
            return Dataset(self._rows, is_batched=self._is_batched, is_endless=True)
        return self._with(list(self._rows.groups) * count)

    def take(self, count: int) -> "Dataset":
        """The first elements; of a data set without end, `n` of them."""
        if count < 0:
            return self
        groups = self._rows.groups
        if self._is_endless:
            groups = [groups[i % len(groups)] for i in range(count)]
        rows = _BatchOfRows(self._rows.arrays, groups[:count], self._rows.functions)
        return Dataset(rows, is_batched=self._is_batched)

    def skip(self, count: int) -> "Dataset":
        """Elements behind the first ones."""
        return self._with(self._rows.groups[count:])

    def cache(self, filename: str = "") -> "Dataset":
        """The data set itself: it is in memory."""
        del filename
        return self

    def prefetch(self, buffer_size: int | None = None) -> "Dataset":
        """The data set itself: it is in memory."""
        del buffer_size
        return self

    def cardinality(self) -> int:
        """How many elements there are; -1: without end."""
        return -1 if self._is_endless else len(self._rows)

    def _with(self, groups: Groups, functions: tuple[Callable, ...] | None = None) -> "Dataset":
        saved = self._rows.functions if functions is None else functions
        rows = _BatchOfRows(self._rows.arrays, groups, saved)
        return Dataset(rows, is_batched=self._is_batched, is_endless=self._is_endless)
