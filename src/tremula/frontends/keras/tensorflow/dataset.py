"""`tf.data.Dataset`: elements one after another, made when they are needed.

A data set is a function that starts an iterator, and how many elements it has. Rows of arrays
travel as their numbers until something needs their values, so that order, repetition and batches
of arrays in memory cost one indexing for each batch.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, NoReturn, Self, cast

import keras
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from tremula.base.errors import suggest
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.tensorflow.elements import (
    Start,
    as_array,
    as_tensor,
    batch_size_of,
    called_with,
    chunks_of,
    endless,
    fetching,
    holds,
    interleaved,
    mapped,
    packed,
    padded,
    saving,
    shuffled,
    specs_of,
    stacked,
    typed_element,
    without_lists,
)
from tremula.frontends.keras.tensorflow.parsing import FileName, glob
from tremula.frontends.keras.tensorflow.records import read_records
from tremula.frontends.keras.tensorflow.types import TensorSpec, as_dtype

AUTOTUNE = -1
INFINITE, UNKNOWN = -1, -2  # instead of a number of elements
_MOST_SEEDS = 2**31
FileNames = FileName | Iterable[FileName]  # a data set of names, too


class _Elements(IterableDataset):
    """What PyTorch's loader, and so Keras, sees of a data set without a known length."""

    def __init__(self, start: Start):
        self.start = start

    def __iter__(self) -> Iterator[object]:
        return self.start()


class _CountedElements(_Elements):
    """Elements whose number is known."""

    def __init__(self, start: Start, n: int):
        super().__init__(start)
        self.n = n

    def __len__(self) -> int:
        return self.n


class DatasetIterator:
    """`iter(dataset)`: elements as tensors."""

    def __init__(self, elements: Iterator[object]):
        self._elements = elements

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:  # an element
        return keras.tree.map_structure(as_tensor, next(self._elements))

    get_next = __next__


class Count(int):
    """A number of elements, as `cardinality()` returns it."""

    def numpy(self) -> int:
        return int(self)


@dataclass
class Options:
    """`tf.data.Options`: how data sets are computed, which changes no element."""

    _settings: dict[str, object] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:  # a setting, or a group of them
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__.setdefault("_settings", {}).setdefault(name, Options())


class Dataset(DataLoader):
    """Arrays, and tuples and dictionaries of them. Every method returns a new data set."""

    def __init__(
        self,
        start: Start,
        n_elements: int,
        *,
        arrays: object = None,
        is_batched: bool = False,
    ):
        """`start` yields elements or, with `arrays`, numbers of their rows."""
        rows_start = fetching(start, arrays)
        known = n_elements >= 0
        elements = _CountedElements(rows_start, n_elements) if known else _Elements(rows_start)
        super().__init__(elements, batch_size=None)
        self._start, self._n = start, n_elements
        self._arrays, self._is_batched = arrays, is_batched

    # -- sources -----------------------------------------------------------------------------------

    @classmethod
    def from_tensor_slices(cls, tensors: object, name: str = "") -> "Dataset":
        """Elements are the rows of arrays."""
        del name
        arrays = keras.tree.map_structure(as_array, without_lists(tensors))
        leaves = keras.tree.flatten(arrays)
        if not leaves or any(array.ndim == 0 for array in leaves):
            raise keras_error("from_tensor_slices needs arrays with rows; got a single number.")
        sizes = {len(array) for array in leaves}
        if len(sizes) != 1:
            raise keras_error(
                f"from_tensor_slices needs arrays of equally many rows; got {sorted(sizes)}."
            )
        n = sizes.pop()
        return Dataset(lambda: iter(range(n)), n, arrays=arrays)

    @classmethod
    def from_tensors(cls, tensors: object, name: str = "") -> "Dataset":
        """One element."""
        del name
        element = keras.tree.map_structure(as_array, without_lists(tensors))
        return Dataset(lambda: iter((element,)), 1)

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[object]],
        output_types: object = None,
        output_shapes: object = None,
        args: Sequence[object] | None = None,
        output_signature: object = None,
        name: str = "",
    ) -> "Dataset":
        """What a function yields, in these types and shapes."""
        del name
        if not callable(generator):
            raise TypeError("from_generator takes a function that returns an iterator.")
        specs = specs_of(output_types, output_shapes, output_signature)
        values = tuple(args or ())

        def start() -> Iterator[object]:
            for element in generator(*values):
                yield typed_element(element, specs)

        return Dataset(start, UNKNOWN)

    @staticmethod
    def range(*limits: int, output_type: object = "int64", name: str = "") -> "Dataset":
        """Whole numbers."""
        del name
        numbers = np.arange(*(int(each) for each in limits), dtype=str(as_dtype(output_type)))
        return Dataset.from_tensor_slices(numbers)

    @staticmethod
    def zip(*datasets: object, name: str = "") -> "Dataset":  # a structure of data sets
        """Elements of several data sets side by side, as many as the shortest has."""
        del name
        structure = datasets[0] if len(datasets) == 1 else datasets
        parts = keras.tree.flatten(structure)
        counts = [part._n for part in parts]
        finite = [n for n in counts if n != INFINITE]
        n = INFINITE if not finite else (UNKNOWN if UNKNOWN in finite else min(finite))

        def start() -> Iterator[object]:
            for row in zip(*(part._elements() for part in parts), strict=False):
                yield packed(structure, row)

        return Dataset(start, n)

    @staticmethod
    def list_files(
        file_pattern: FileName | list[FileName] | tuple[FileName, ...],
        shuffle: bool | None = None,
        seed: int | None = None,
        name: str = "",
    ) -> "Dataset":
        """Names of files that match a pattern, by default in random order."""
        del name
        names = glob(file_pattern)
        if not names:
            raise FileNotFoundError(f"no file matches {file_pattern!r}")
        result = Dataset.from_tensor_slices(np.array([n.encode() for n in names], object))
        return result if shuffle is False else result.shuffle(len(names), seed)

    # -- order -------------------------------------------------------------------------------------

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
        name: str = "",
    ) -> "Dataset":
        """Elements in random order: each is drawn from the next `buffer_size` ones."""
        del name
        if int(buffer_size) < 1:
            raise ValueError(f"buffer_size must be at least 1; got {buffer_size!r}.")
        first = int(torch.randint(_MOST_SEEDS, ())) if seed is None else int(seed)
        draws = itertools.count() if reshuffle_each_iteration is not False else itertools.repeat(0)
        return self._with(
            lambda: shuffled(self._start(), int(buffer_size), (first, next(draws))), self._n
        )

    def repeat(self, count: int | None = None, name: str = "") -> "Dataset":
        """The elements several times, or without end, as fit(steps_per_epoch=…) takes them."""
        del name
        if count is None or count < 0:
            return self._with(lambda: endless(self._start), INFINITE if self._n else 0)
        times = int(count)
        n = self._n * times if self._n >= 0 else self._n
        chain = itertools.chain.from_iterable
        return self._with(lambda: chain(self._start() for _ in range(times)), n if times else 0)

    def take(self, count: int, name: str = "") -> "Dataset":
        """The first elements; all with -1."""
        del name
        if count < 0:
            return self
        n = count if self._n == INFINITE else min(count, self._n) if self._n >= 0 else UNKNOWN
        return self._with(lambda: itertools.islice(self._start(), int(count)), n)

    def skip(self, count: int, name: str = "") -> "Dataset":
        """Elements behind the first ones; none with -1."""
        del name
        if count < 0:
            return self.take(0)
        n = max(0, self._n - count) if self._n >= 0 else self._n
        return self._with(lambda: itertools.islice(self._start(), int(count), None), n)

    def shard(self, num_shards: int, index: int, name: str = "") -> "Dataset":
        """Every n-th element, from one on: the part of one of several processes."""
        del name
        if not 0 <= index < num_shards:
            raise ValueError(f"index must be from 0 to {num_shards - 1}; got {index}.")
        n = self._n if self._n < 0 else len(range(index, self._n, num_shards))
        return self._with(lambda: itertools.islice(self._start(), index, None, num_shards), n)

    def concatenate(self, dataset: "Dataset", name: str = "") -> "Dataset":
        """The elements of this data set, then those of another."""
        del name
        counts = (self._n, dataset._n)
        n = min(counts) if min(counts) < 0 else sum(counts)
        n = INFINITE if INFINITE in counts else n
        return Dataset(lambda: itertools.chain(self._elements(), dataset._elements()), n)

    # -- groups ------------------------------------------------------------------------------------

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str = "",
    ) -> "Dataset":
        """Elements are `batch_size` of the present ones, the last fewer unless it is dropped."""
        del num_parallel_calls, deterministic, name
        size = batch_size_of(batch_size)
        n = self._n
        if n >= 0:
            n = n // size if drop_remainder else math.ceil(n / size)
        if self._arrays is not None and not self._is_batched:
            return Dataset(
                lambda: map(np.asarray, chunks_of(self._start(), size, drop_remainder)),
                n,
                arrays=self._arrays,
                is_batched=True,
            )
        chunks = lambda: chunks_of(self._elements(), size, drop_remainder)  # noqa: E731
        return Dataset(lambda: map(stacked, chunks()), n)

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: object = None,
        padding_values: object = None,
        drop_remainder: bool = False,
        name: str = "",
    ) -> "Dataset":
        """`batch` of elements of different sizes, filled up to the largest or to given shapes."""
        del name
        size = batch_size_of(batch_size)
        n = self._n
        if n >= 0:
            n = n // size if drop_remainder else math.ceil(n / size)

        def start() -> Iterator[object]:
            for chunk in chunks_of(self._elements(), size, drop_remainder):
                yield padded(chunk, padded_shapes, padding_values)

        return Dataset(start, n)

    def unbatch(self, name: str = "") -> "Dataset":
        """Elements are the rows of the present ones."""
        del name

        def start() -> Iterator[object]:
            for element in self._elements():
                n_rows = len(keras.tree.flatten(element)[0])
                for i in range(n_rows):
                    yield keras.tree.map_structure(lambda array, i=i: array[i], element)

        return Dataset(start, UNKNOWN if self._n >= 0 else self._n)

    # -- functions ---------------------------------------------------------------------------------

    def map(
        self,
        map_func: Callable[..., object],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str = "",
    ) -> "Dataset":
        """Elements are what a function makes of the present ones."""
        del num_parallel_calls, deterministic, name  # elements are made where they are used
        return Dataset(lambda: (mapped(map_func, e) for e in self._elements()), self._n)

    def filter(self, predicate: Callable[..., object], name: str = "") -> "Dataset":
        """The elements for which a function holds."""
        del name
        n = UNKNOWN if self._n >= 0 else self._n
        return Dataset(lambda: (e for e in self._elements() if holds(predicate, e)), n)

    def flat_map(self, map_func: Callable[..., "Dataset"], name: str = "") -> "Dataset":
        """The elements of the data sets that a function makes of the present ones."""
        return self.interleave(map_func, 1, name=name)

    def interleave(
        self,
        map_func: Callable[..., "Dataset"],
        cycle_length: int | None = None,
        block_length: int = 1,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str = "",
    ) -> "Dataset":
        """Elements of several data sets in turn: `block_length` of each of `cycle_length`."""
        del num_parallel_calls, deterministic, name
        n_open = 1 if cycle_length is None or cycle_length == AUTOTUNE else int(cycle_length)

        def start() -> Iterator[object]:
            inner = (
                cast("Dataset", called_with(map_func, e))._elements() for e in self._elements()
            )
            return interleaved(inner, n_open, int(block_length))

        return Dataset(start, UNKNOWN)

    def enumerate(self, start: int = 0, name: str = "") -> "Dataset":
        """Pairs of a number and an element."""
        del name
        return Dataset(
            lambda: ((np.int64(i), e) for i, e in enumerate(self._elements(), start)), self._n
        )

    def apply(self, transformation_func: Callable[["Dataset"], "Dataset"]) -> "Dataset":
        """What a function makes of the data set."""
        return transformation_func(self)

    def reduce(
        self, initial_state: object, reduce_func: Callable[..., object], name: str = ""
    ) -> object:
        """A value that a function renews with every element."""
        del name
        state = initial_state
        for element in self._elements():
            state = reduce_func(state, keras.tree.map_structure(as_tensor, element))
        return state

    # -- how it runs, which changes nothing here ---------------------------------------------------

    def cache(self, filename: str = "", name: str = "") -> "Dataset":
        """Elements are computed once, and saved in memory."""
        del filename, name
        if self._arrays is not None:
            return self
        saved: list[object] = []
        is_complete = [False]

        def start() -> Iterator[object]:
            if is_complete[0]:
                return iter(saved)
            return saving(self._elements(), saved, is_complete)

        return Dataset(start, self._n)

    def prefetch(self, buffer_size: int | None = None, name: str = "") -> "Dataset":
        """The data set itself: elements are made where they are used."""
        del buffer_size, name
        return self

    def with_options(self, options: Options, name: str = "") -> "Dataset":
        """The data set itself: options change no element."""
        del options, name
        return self

    def options(self) -> Options:
        return Options()

    # -- what it is --------------------------------------------------------------------------------

    def cardinality(self) -> Count:
        """How many elements there are; -1: without end, -2: not known."""
        return Count(self._n)

    def __len__(self) -> int:
        if self._n < 0:
            what = "has no end" if self._n == INFINITE else "has an unknown length"
            raise TypeError(f"the data set {what}.")
        return self._n

    def __bool__(self) -> bool:
        return True

    @property
    def element_spec(self) -> Any:  # a structure of TensorSpec
        """Shapes and types of the first element."""
        first = next(self._elements(), None)
        return keras.tree.map_structure(_spec, first)

    def as_numpy_iterator(self) -> Iterator[object]:
        """Elements as NumPy arrays."""
        return self._elements()

    def __iter__(self) -> DatasetIterator:  # pyright: ignore[reportIncompatibleMethodOverride]
        return DatasetIterator(self._elements())

    def _elements(self) -> Iterator[object]:
        return _fetched(self.dataset)

    def _with(self, start: Start, n: int) -> "Dataset":
        """Other numbers of rows, or other elements, of the same arrays."""
        return Dataset(start, n, arrays=self._arrays, is_batched=self._is_batched)

    def __getattr__(self, name: str) -> NoReturn:  # called for missing names only
        if not name.startswith("_"):
            known = [each for each in vars(Dataset) if not each.startswith("_")]
            raise AttributeError(f"tf.data.Dataset has no {name!r} here; {suggest(name, known)}")
        raise AttributeError(name)


def _fetched(elements: Any) -> Iterator[object]:
    """An iterator of the elements that the loader sees."""
    return elements.start()


def _spec(leaf: object) -> TensorSpec:
    return TensorSpec((), "string") if isinstance(leaf, bytes) else TensorSpec.from_tensor(leaf)


def cardinality(dataset: Dataset) -> Count:
    """How many elements a data set has; -1: without end, -2: not known."""
    return dataset.cardinality()


class TFRecordDataset(Dataset):
    """The records of files, as bytes."""

    def __init__(
        self,
        filenames: FileNames,  # a name, several, or a data set of names
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str = "",
    ):
        del buffer_size, num_parallel_reads, name
        names = _file_names(filenames)

        def start() -> Iterator[object]:
            for path in names:
                yield from read_records(path, compression_type)

        super().__init__(start, UNKNOWN)


class TextLineDataset(Dataset):
    """The lines of files, as bytes."""

    def __init__(self, filenames: FileNames, **_details: object):
        names = _file_names(filenames)

        def start() -> Iterator[object]:
            for path in names:
                with open(path, "rb") as file:
                    for line in file:
                        yield line.rstrip(b"\r\n")

        super().__init__(start, UNKNOWN)


def _file_names(filenames: FileNames) -> list[str]:
    if isinstance(filenames, Dataset):
        filenames = [np.asarray(each, object).item() for each in filenames._elements()]
    values = [filenames] if isinstance(filenames, str | bytes | PathLike) else list(filenames)
    return [each.decode() if isinstance(each, bytes) else str(each) for each in values]
