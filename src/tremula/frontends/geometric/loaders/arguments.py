"""What the fixed-size loaders have in common: their arguments, checked and turned into torch's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import RandomSampler, Sampler
from torch_geometric.data import InMemoryDataset
from torch_geometric.data.data import BaseData

from tremula.frontends.geometric.common import is_hetero
from tremula.frontends.geometric.feeding.assemble import ColumnCollater
from tremula.frontends.geometric.feeding.columns import GraphColumns, reason_against
from tremula.frontends.geometric.fixed_size.collate import FixedSizeCollater
from tremula.frontends.geometric.fixed_size.levels import attribute_levels
from tremula.frontends.geometric.fixed_size.options import (
    FixedSizeOptions,
    FixedSizeStrategy,
    OverSizeStrategy,
)
from tremula.frontends.geometric.packing.histogram import HistogramPackingSampler
from tremula.frontends.geometric.packing.stream import StreamPackingSampler

# Graphs of a data set that are looked at to distinguish attributes of nodes from those of graphs.
N_SAMPLES_FOR_LEVELS = 64


@dataclass(frozen=True)
class FixedSizeArguments:
    """The arguments of a fixed-size loader as its user gave them."""

    dataset: Sequence[BaseData]
    batch_size: int = 2
    shuffle: bool = False
    fixed_size_options: FixedSizeOptions | None = None
    fixed_size_strategy: FixedSizeStrategy = FixedSizeStrategy.PadToMax
    over_size_strategy: OverSizeStrategy = OverSizeStrategy.Error
    add_pad_masks: bool = True
    follow_batch: Sequence[str] | None = None
    exclude_keys: Sequence[str] | None = None
    sort_edges: bool = False
    others: dict[str, object] = field(default_factory=dict)  # for torch's loader

    def __post_init__(self) -> None:
        assert "collate_fn" not in self.others, (
            "Cannot set `collate_fn` of a FixedSizeDataLoader, which has its own: use "
            "torch.utils.data.DataLoader to collate otherwise."
        )
        packs = self.fixed_size_strategy is not FixedSizeStrategy.PadToMax
        if packs and self.others.get("batch_sampler") is not None:
            raise ValueError(
                f"FixedSizeStrategy.{self.fixed_size_strategy.name} chooses the graphs of each "
                "batch itself and cannot be used with a `batch_sampler`."
            )
        if self.over_size_strategy is OverSizeStrategy.Skip and not packs:
            raise ValueError(
                "OverSizeStrategy.Skip needs a strategy that packs, such as "
                "FixedSizeStrategy.StreamPack: PadToMax takes the graphs as they come."
            )

    def options(self) -> FixedSizeOptions:
        """The sizes: those of the arguments, or enough for the largest graphs of the data set."""
        options = self.fixed_size_options
        if options is None:
            options = FixedSizeOptions.from_dataset(self.dataset, self.batch_size)
        first = self.dataset[0]
        if is_hetero(first) and not options.is_hetero():
            options.to_hetero(first.node_types, first.edge_types)
        assert self.batch_size == options.num_graphs, (
            f"`batch_size` (= {self.batch_size}) must equal `num_graphs` (= {options.num_graphs}) "
            "of the fixed size options: both count the padding graph."
        )
        return options

    def collater(self, options: FixedSizeOptions) -> FixedSizeCollater:
        """The plain collater for these sizes."""
        n_samples = min(N_SAMPLES_FOR_LEVELS, len(self.dataset))
        levels = attribute_levels(self.dataset[i] for i in range(n_samples))
        return FixedSizeCollater(
            options,
            add_masks_to_batch=self.add_pad_masks,
            trim_nodes=self.over_size_strategy.trims_nodes,
            trim_edges=self.over_size_strategy.trims_edges,
            follow_batch=self.follow_batch,
            exclude_keys=self.exclude_keys,
            sort_edges=self.sort_edges,
            levels=levels,
        )

    def sampling(self, options: FixedSizeOptions) -> dict[str, Any]:
        """Arguments of torch's loader that choose graphs: a sampler, or sizes and shuffling."""
        if self.others.get("batch_sampler") is not None:
            return {}
        if self.fixed_size_strategy is FixedSizeStrategy.PadToMax:
            return {"batch_size": options.num_graphs - 1, "shuffle": self.shuffle}
        return {"batch_sampler": self._packing(options)}

    def _packing(self, options: FixedSizeOptions) -> Sampler[list[int]]:
        # One graph, node and edge of each type are for padding.
        n_node_types = len(options.num_nodes) if isinstance(options.num_nodes, dict) else 1
        n_edge_types = len(options.num_edges) if isinstance(options.num_edges, dict) else 1
        n_edges = options.total_num_edges - n_edge_types
        limits = (
            options.num_graphs - 1,
            options.total_num_nodes - n_node_types,
            n_edges if options.total_num_edges else None,  # graphs without edges need none
        )
        skips = self.over_size_strategy is OverSizeStrategy.Skip
        if self.fixed_size_strategy is FixedSizeStrategy.HistogramPack:
            return HistogramPackingSampler(
                self.dataset, *limits, shuffle=self.shuffle, allow_skip_data=skips
            )
        base = RandomSampler(self.dataset) if self.shuffle else None
        return StreamPackingSampler(self.dataset, *limits, base_sampler=base, allow_skip_data=skips)

    def column_collater(
        self, options: FixedSizeOptions, *, is_combined: bool
    ) -> ColumnCollater | None:
        """The fast way, if the data set is in memory and nothing runs for each graph."""
        is_in_memory = isinstance(self.dataset, GraphColumns | InMemoryDataset)
        trims = self.over_size_strategy.trims_nodes or self.over_size_strategy.trims_edges
        if not is_in_memory or trims or self.follow_batch:
            return None
        if reason_against(self.dataset, set(self.exclude_keys or ())) is not None:
            return None
        packs = self.fixed_size_strategy is not FixedSizeStrategy.PadToMax
        has_sampler = packs or self.others.get("batch_sampler") is not None
        is_one_pack = has_sampler or not is_combined
        return ColumnCollater(
            GraphColumns.from_dataset(self.dataset, self.exclude_keys, sort_edges=self.sort_edges),
            options,
            add_masks_to_batch=self.add_pad_masks,
            mini_batch_size=None if is_one_pack else options.num_graphs - 1,
            is_combined=is_combined,
            pin_memory=torch.cuda.is_available(),
        )


class Numbers(torch.utils.data.Dataset):
    """The numbers of the graphs of a data set, for collaters that fetch graphs by number."""

    def __init__(self, graphs: Sequence[BaseData]):
        self.graphs = graphs

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, number: int) -> int:
        return number

    def __getitems__(self, numbers: list[int]) -> list[int]:
        return numbers


def sizes_from(
    options: FixedSizeOptions | None, batch_size: int, num_nodes: int | None, num_edges: int | None
) -> FixedSizeOptions | None:
    """Sizes passed as numbers, as loaders took them before there were options; or the options."""
    if num_nodes is None and num_edges is None:
        return options
    if options is not None or num_nodes is None:
        raise ValueError(
            "Give the size of batches once: as `fixed_size_options`, or as `num_nodes` with or "
            "without `num_edges`."
        )
    return FixedSizeOptions(num_nodes, num_edges, batch_size)
