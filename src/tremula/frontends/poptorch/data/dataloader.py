"""poptorch.DataLoader: torch's, with batches of the size one call of a model consumes."""

from collections.abc import Iterator, Sized
from inspect import signature
from typing import Any, cast

import torch
from torch.utils.data import IterableDataset

from tremula.base.errors import suggest
from tremula.base.processes import TORCH_GENERATORS
from tremula.base.tracing import is_tracing
from tremula.frontends.poptorch.data.async_data import AsynchronousDataAccessor, n_rows_of
from tremula.frontends.poptorch.data.batch_structures import concatenated
from tremula.frontends.poptorch.enums import DataLoaderMode
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.executor.profile_folder import trace_if_profiled
from tremula.frontends.poptorch.inputs.arguments import n_batches_to_combine
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.poptorch.profiling import timed_batches

Keywords = dict[str, Any]  # arguments for another class, by name

# -- which elements belong to which process --------------------------------------------------------


class PartitionSampler(torch.utils.data.Sampler[int]):
    """The share of one process in the elements 0 … n_elements-1: a contiguous range of them.

    `n_combined` (elements per combined batch): every process gets the same number of whole
    combined batches, and what is left over belongs to none. None: nothing is left over, the first
    processes get one element more than the last ones.

    `seed`: the range is one of a permutation, which is the same in all processes and changes with
    each epoch. Elements that were left over in epoch 0, 2, 4, … are all part of the next one, so
    two epochs cover everything.
    """

    def __init__(
        self,
        *,
        n_elements: int,
        process_id: int,
        n_processes: int,
        n_combined: int | None,
        seed: int | None,
    ):
        self._n_elements = n_elements
        self._seed = seed
        self._epoch = 0
        n_each, n_left = divmod(n_elements, n_processes)
        if n_combined is None:
            self._begin = process_id * n_each + min(process_id, n_left)
            self._end = self._begin + n_each + (process_id < n_left)
            self._n_used = n_elements
        else:
            n_each = n_elements // (n_combined * n_processes) * n_combined
            self._begin, self._end = process_id * n_each, (process_id + 1) * n_each
            self._n_used = n_processes * n_each

    def __len__(self) -> int:
        return self._end - self._begin

    def __iter__(self) -> Iterator[int]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        if self._seed is None:
            return iter(range(self._begin, self._end))
        order = self._permutation(epoch)
        if epoch % 2 == 1:
            self._swap_in(self._permutation(epoch - 1)[self._n_used :], order)
        return iter(order[self._begin : self._end].tolist())

    def _permutation(self, epoch: int) -> torch.Tensor:
        assert self._seed is not None, "only called when shuffling"
        generator = torch.Generator().manual_seed(self._seed + epoch)
        return torch.randperm(self._n_elements, generator=generator)

    def _swap_in(self, left_over: torch.Tensor, order: torch.Tensor) -> None:
        """Exchange elements so that all of `left_over` are among those that are used."""
        if self._n_used == 0:
            return
        is_left_over = torch.isin(order, left_over)
        unlucky = is_left_over[self._n_used :].nonzero().flatten() + self._n_used
        # Fewer are left over than are used, so there are enough places to swap with.
        places = (~is_left_over[: self._n_used]).nonzero().flatten()[: len(unlucky)]
        order[places], order[unlucky] = order[unlucky].clone(), order[places].clone()


# -- the loader ------------------------------------------------------------------------------------


CHANNEL = "poptorch.DataLoader"  # of the system trace


class DataLoader(torch.utils.data.DataLoader):
    """Loads what one call of a model needs: device iterations × replicas × accumulation batches.

    * `options`: the options of the model; frozen from now on.
    * `batch_size`: of a micro-batch, what `forward` sees. None: elements are batches already.
    * `drop_last`: leave out an incomplete combined batch. Models have static shapes, so the default
      is True, unlike torch's.
    * `auto_distributed_partitioning`: of several processes each loads its own part.
    * `mode`: `Sync`, or `Async`: another process reads ahead (see `AsynchronousDataAccessor`), or
      `AsyncRebatched`: it reads single elements, or `rebatched_worker_size` at a time, and joins
      them, so that several workers on an iterable data set lose less than one combined batch.
    * `async_options`: arguments of `AsynchronousDataAccessor`; only the asynchronous modes use it.
    * `batch_sampler`: yields the indices of one micro-batch after the other; they are collated one
      by one and then joined: as many as a call needs, or, in mode `AsyncRebatched` with a sampler
      that has a `batch_size`, until there are that many rows. Excludes `batch_size`, `shuffle`,
      `sampler` and `rebatched_worker_size`.

    Everything else is handed to `torch.utils.data.DataLoader`.
    """

    _accessor: AsynchronousDataAccessor | None = None

    def __init__(  # noqa: PLR0913, PLR0917 — the signature is PopTorch's
        self,
        options: Options,
        dataset: torch.utils.data.Dataset,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: Keywords | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: torch.utils.data.Sampler[list[int]] | None = None,
        **kwargs,
    ):
        _check_options(options)
        trace_if_profiled(options)
        mode = DataLoaderMode(mode)
        options.freeze()
        self.options = options
        self.drops_last_combined = drop_last
        self._n_batches = n_batches_to_combine(options)
        self._is_sampled_in_batches = batch_sampler is not None
        if batch_sampler is not None:
            _check_batch_sampler(batch_size, shuffle, rebatched_worker_size, kwargs)
            batch_size = getattr(batch_sampler, "batch_size", None)
        has_size = isinstance(batch_size, int)
        self._combined_batch_size = batch_size * self._n_batches if has_size else None
        if auto_distributed_partitioning and options.Distributed.numProcesses > 1:
            shuffle = self._partition(dataset, shuffle, kwargs)
        rebatches = self._rebatches(mode, isinstance(dataset, IterableDataset))
        self._combines_batches = self._is_sampled_in_batches and not rebatches
        if batch_sampler is not None:
            kwargs["batch_sampler"] = batch_sampler
        else:
            size = _worker_size(rebatched_worker_size, self._combined_batch_size, rebatches)
            keeps_all = rebatches or size is None
            kwargs.update(batch_size=size, shuffle=shuffle, drop_last=drop_last and not keeps_all)
        if persistent_workers is None:
            persistent_workers = num_workers > 0
        super().__init__(
            dataset, num_workers=num_workers, persistent_workers=persistent_workers, **kwargs
        )
        self._warn_about_duplicates()
        self._warn_about_short_batch()
        if mode is not DataLoaderMode.Sync:
            self._accessor = self._make_accessor(rebatches, async_options or {})

    @property
    def combinedBatchSize(self) -> int | None:  # noqa: N802
        """Elements per iteration; None if a batch sampler or the data set decides."""
        return self._combined_batch_size

    def terminate(self) -> None:
        """Stop the processes that load data. May be called again."""
        if self._accessor is not None:
            self._accessor.terminate()
        self._iterator = None  # persistent workers end with their iterator

    def __len__(self) -> int:
        if self._accessor is not None:
            return len(self._accessor)
        n_batches = super().__len__()
        if not self._combines_batches:
            return n_batches
        n_full, n_left = divmod(n_batches, self._n_batches)
        return n_full + (1 if n_left and not self.drops_last_combined else 0)

    def __iter__(self) -> Iterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self._accessor is not None:
            return iter(self._accessor)
        with TORCH_GENERATORS:  # it draws a seed
            batches = super().__iter__()
        if is_tracing():
            batches = timed_batches(CHANNEL, "load batch", batches)
        return self._combine(batches) if self._combines_batches else batches

    def __getstate__(self) -> Keywords:
        """The state for another process, in which the loader works synchronously."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_accessor", "_iterator")
        } | {"_iterator": None}

    def _combine(self, batches: Iterator[Any]) -> Iterator[Any]:
        waiting = []
        for batch in batches:
            waiting.append(batch)
            if len(waiting) == self._n_batches:
                yield concatenated(waiting)
                waiting = []
        if waiting and not self.drops_last_combined:
            yield concatenated(waiting)

    def _partition(
        self, dataset: torch.utils.data.Dataset, shuffle: bool | None, kwargs: Keywords
    ) -> bool | None:
        """Give this process its part through a sampler; returns the value `shuffle` then has."""
        assert not isinstance(dataset, IterableDataset), (
            "auto_distributed_partitioning is not supported for an IterableDataset: set it to "
            "False and let the data set give each process its part."
        )
        if self._is_sampled_in_batches:
            raise createPoptorchError(
                "auto_distributed_partitioning does not work with a batch_sampler: set it to False "
                "and let the sampler give each process its part."
            )
        if kwargs.get("sampler") is not None:
            return shuffle  # the sampler decides what this process loads
        assert not shuffle or self.options.exists("random_seed"), (
            "Shuffling in several processes needs the same seed in all of them: call "
            "poptorch.Options.randomSeed."
        )
        n_combined = self._combined_batch_size or 1
        kwargs["sampler"] = PartitionSampler(
            n_elements=len(cast(Sized, dataset)),
            process_id=self.options.Distributed.processId,
            n_processes=self.options.Distributed.numProcesses,
            n_combined=n_combined if self.drops_last_combined else None,
            seed=self.options.random_seed if shuffle else None,
        )
        return None

    def _rebatches(self, mode: DataLoaderMode, is_iterable: bool) -> bool:
        """Whether elements are joined to batches after the workers, not in them."""
        if mode is DataLoaderMode.AsyncRebatched:
            if self._combined_batch_size is None and self._is_sampled_in_batches:
                return False  # batches of any size are joined by their number
            if self._combined_batch_size is None:
                raise createPoptorchError(
                    "DataLoaderMode.AsyncRebatched needs a batch_size: with None there is nothing "
                    "to join elements to."
                )
            return True
        # Each worker would end with a short batch, in the middle of the others.
        has_short_batches = is_iterable and not self.drops_last_combined
        return (
            mode is DataLoaderMode.Async and has_short_batches and bool(self._combined_batch_size)
        )

    def _make_accessor(self, rebatches: bool, async_options: Keywords) -> AsynchronousDataAccessor:
        known = set(signature(AsynchronousDataAccessor).parameters) - {"dataset", "rebatched_size"}
        for name in async_options:
            if name not in known:
                raise createPoptorchError(f"async_options has no {name!r}: {suggest(name, known)}")
        rebatched_size = self._combined_batch_size if rebatches else None
        return AsynchronousDataAccessor(self, rebatched_size=rebatched_size, **async_options)

    def _warn_about_duplicates(self) -> None:
        is_iterable = isinstance(self.dataset, IterableDataset)
        if is_iterable and self.num_workers > 1 and self.worker_init_fn is None:
            LOGGER.warning(
                "Each of the %d workers iterates over the whole IterableDataset, so every element "
                "comes that many times. Give each worker its part with worker_init_fn.",
                self.num_workers,
            )

    def explain_no_batch(self) -> str | None:
        """Why the loader yields no batch, as far as that is known; None if it yields some."""
        n_found, n_needed, what = self._found_and_needed()
        if not self.drops_last_combined or n_needed is None:
            return None
        if n_found is None:
            return (
                f"The data set has no {what}, or fewer than the {n_needed} of one combined batch:"
                " with drop_last=True there is no batch at all."
            )
        if not 0 < n_found < n_needed:
            return None
        return (
            f"The data set has {n_found} {what}, fewer than one combined batch of {n_needed}: with "
            "drop_last=True there is no batch at all."
        )

    def _found_and_needed(self) -> tuple[int | None, int | None, str]:
        """Elements, or batches of a sampler: how many there are, and how many a call needs."""
        if self._combines_batches:
            return _length_of(self.batch_sampler), self._n_batches, "batches"
        if self._is_sampled_in_batches:
            n_found = n_rows_of(self) if isinstance(self.batch_sampler, Sized) else None
            return n_found, self._combined_batch_size, "elements"
        return _length_of(self.sampler), self._combined_batch_size, "elements"

    def _warn_about_short_batch(self) -> None:
        n_found, n_needed, what = self._found_and_needed()
        if not n_found or not n_needed:
            return
        explanation = self.explain_no_batch()
        if explanation is not None:
            LOGGER.warning(explanation)
        elif n_found % n_needed and not self.drops_last_combined:
            LOGGER.warning(
                "drop_last=False: the last of the combined batches of %d %s has only %d. "
                "A compiled model has static shapes and will reject it.",
                n_needed,
                what,
                n_found % n_needed,
            )


def _length_of(sampler: object) -> int | None:
    """How much a sampler yields; None if it cannot know before it does."""
    try:
        return len(sampler) if isinstance(sampler, Sized) else None
    except NotImplementedError:
        return None


def _check_options(options: object) -> None:
    if not isinstance(options, Options):
        raise createPoptorchError(
            f"Invalid type: 'options' is of type {type(options)} (Expected poptorch.Options)"
        )


def _check_batch_sampler(
    batch_size: int | None, shuffle: bool | None, worker_size: int | None, kwargs: Keywords
) -> None:
    has_other = batch_size not in (None, 1) or shuffle or kwargs.get("sampler") is not None
    if has_other or worker_size is not None:
        raise createPoptorchError(
            "batch_sampler already says what each batch is made of: it excludes batch_size, "
            "shuffle, sampler and rebatched_worker_size."
        )


def _worker_size(requested: int | None, combined: int | None, rebatches: bool) -> int | None:
    """How many elements a worker loads at a time."""
    if not rebatches or combined is None:
        return combined
    size = 1 if requested is None else requested
    assert 1 <= size <= combined, (
        f"rebatched_worker_size must be between 1 and the combined batch size {combined}: "
        f"got {size}"
    )
    return size
