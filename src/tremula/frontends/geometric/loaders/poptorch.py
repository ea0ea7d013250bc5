"""Loaders for PopTorch models: what one call consumes, joined along dimension 0."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import cast

import torch
from torch_geometric.data.data import BaseData

from tremula.base.tracing import is_tracing
from tremula.frontends.geometric.common import GraphBatch
from tremula.frontends.geometric.feeding.threads import N_AHEAD, in_threads
from tremula.frontends.geometric.fixed_size.collate import Collater, CombinedBatchingCollater
from tremula.frontends.geometric.fixed_size.options import (
    FixedSizeOptions,
    FixedSizeStrategy,
    OverSizeStrategy,
)
from tremula.frontends.geometric.loaders import plain
from tremula.frontends.geometric.loaders.arguments import (
    FixedSizeArguments,
    Numbers,
    sizes_from,
)
from tremula.frontends.poptorch.data.dataloader import CHANNEL
from tremula.frontends.poptorch.data.dataloader import DataLoader as PopTorchLoader
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.poptorch.profiling import timed_batches
from tremula.ir.host.transfer.inputs import announce

# Batches that are alive besides those ahead: the one in use, the one before it, which the script
# still holds while it asks for the next, and one that the GPU may not have read to its end.
_N_IN_USE = 3


class DataLoader(plain.DataLoader, PopTorchLoader):
    """Batches of `batch_size` graphs, as large as they come out.

    A compiled model rejects batches of another size: use `FixedSizeDataLoader` for graphs that
    differ in size.
    """

    def __init__(
        self,
        dataset: Sequence[BaseData],
        batch_size: int = 1,
        shuffle: bool = False,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        options: Options | None = None,
        **kwargs,
    ):
        kwargs.pop("collate_fn", None)
        collater = Collater(follow_batch, exclude_keys)
        self.follow_batch, self.exclude_keys = follow_batch, exclude_keys
        PopTorchLoader.__init__(
            self,
            Options() if options is None else options,
            dataset,  # pyright: ignore[reportArgumentType] (any sequence will do)
            batch_size=batch_size,
            shuffle=shuffle,
            collate_fn=CombinedBatchingCollater(collater, mini_batch_size=batch_size),
            **kwargs,
        )


class FixedSizeDataLoader(plain.FixedSizeDataLoader, PopTorchLoader):
    """Batches that all have one size, so that a model compiled for one takes all of them.

    * `batch_size`: graphs of a batch, the padding graph included: 2 is one real graph.
    * `fixed_size_options`: the size; None: enough for any batch_size - 1 graphs of the data set.
    * `fixed_size_strategy`: pad a fixed number of graphs, or pack as many as fit.
    * `over_size_strategy`: what happens to graphs that do not fit.
    * `add_pad_masks`: boolean masks of what is real, for graphs, nodes and edges.
    * `sort_edges`: bring the edges of each graph in the order of their targets: gathers and sums
      over edges read memory in order. Results per edge come in that order, too, and attributes
      that hold numbers of edges no longer fit. A `GraphColumns` is in that order already.
    * `num_threads`: threads that make batches ahead of their use, if the data set is in memory: a
      `GraphColumns`, or an `InMemoryDataset` of tensors without a transform. Others, and 0: none.
    * `options`: of the model; a batch of the loader is what one call of it consumes.
    * `num_nodes`, `num_edges`: the size, as older scripts give it instead of `fixed_size_options`.

    Everything else goes to `poptorch.DataLoader`.
    """

    def __init__(
        self,
        dataset: Sequence[BaseData],
        batch_size: int = 2,
        shuffle: bool = False,
        fixed_size_options: FixedSizeOptions | None = None,
        fixed_size_strategy: FixedSizeStrategy = FixedSizeStrategy.PadToMax,
        over_size_strategy: OverSizeStrategy = OverSizeStrategy.Error,
        add_pad_masks: bool = True,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        options: Options | None = None,
        *,
        sort_edges: bool = False,
        num_threads: int = 2,
        num_nodes: int | None = None,
        num_edges: int | None = None,
        **kwargs,
    ):
        fixed_size_options = sizes_from(fixed_size_options, batch_size, num_nodes, num_edges)
        values = FixedSizeArguments(
            dataset, batch_size, shuffle, fixed_size_options, fixed_size_strategy,
            over_size_strategy, add_pad_masks, follow_batch, exclude_keys, sort_edges, kwargs,
        )  # fmt: skip
        self.fixed_size_options = values.options()
        self.padded_batch_size = batch_size
        self._n_threads = num_threads
        self._has_pinned = False
        sampling = values.sampling(self.fixed_size_options)
        self._by_columns = values.column_collater(self.fixed_size_options, is_combined=True)
        collater = self._by_columns or CombinedBatchingCollater(
            values.collater(self.fixed_size_options), mini_batch_size=sampling.get("batch_size")
        )
        PopTorchLoader.__init__(
            self,
            Options() if options is None else options,
            dataset if self._by_columns is None else Numbers(dataset),  # pyright: ignore[reportArgumentType]
            collate_fn=collater,
            **sampling,
            **kwargs,
        )

    def __iter__(self) -> Iterator[GraphBatch]:  # pyright: ignore[reportIncompatibleMethodOverride]
        has_processes = self.num_workers > 0 or self._accessor is not None
        if self._by_columns is None or has_processes or self._n_threads == 0:
            return super().__iter__()
        collate = self._by_columns.collate_packs if self._combines_batches else self._by_columns
        announced = _announce if torch.cuda.is_available() else None
        batches = in_threads(collate, self._pinned_first(), self._n_threads, announced)
        return timed_batches(CHANNEL, "load batch", batches) if is_tracing() else batches

    def _pinned_first(self) -> Iterator[list]:
        """The graphs of the calls; before the first of all, memory of their batches is pinned.

        As much as all batches need that live at a time, so that none of them waits for it later.
        """
        calls = self._numbers()
        if self._by_columns is not None and self._by_columns.pin_memory and not self._has_pinned:
            n_ahead = N_AHEAD * self._n_threads
            first = list(islice(calls, n_ahead))
            if first:
                n_alive = len(first) if len(first) < n_ahead else n_ahead + _N_IN_USE
                self._by_columns.pin(self._n_packs(first[0]), n_alive)
                self._has_pinned = True
            yield from first
        yield from calls

    def _n_packs(self, call: list) -> int:
        size = self._by_columns.mini_batch_size if self._by_columns is not None else None
        return len(call) if self._combines_batches else len(call) // (size or len(call))

    def _numbers(self) -> Iterator[list]:
        """The graphs of one call after the other; a list of packs where a sampler makes packs."""
        numbers = cast(Iterable[list[int]], self._index_sampler)
        if not self._combines_batches:
            yield from numbers
            return
        packs = iter(numbers)
        while call := list(islice(packs, self._n_batches)):
            if len(call) == self._n_batches or not self.drops_last_combined:
                yield call


def _announce(batch: GraphBatch, following: GraphBatch) -> None:
    """Let a GPU fetch a batch while it works on the one before."""
    own, others = batch.to_dict(), following.to_dict()
    announce((value, others[name]) for name, value in own.items() if torch.is_tensor(value))
