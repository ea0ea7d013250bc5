"""FixedSizeNeighborLoader: batches of one size from the sampled neighbours of some nodes."""

from collections.abc import Callable, Sequence

from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.loader import NeighborLoader
from torch_geometric.loader.utils import get_input_nodes
from torch_geometric.sampler import NeighborSampler
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.typing import EdgeType, InputNodes

from tremula.frontends.geometric.common import GraphBatch
from tremula.frontends.geometric.fixed_size.collate import (
    CombinedBatchingCollater,
    FixedSizeCollater,
)
from tremula.frontends.geometric.fixed_size.options import FixedSizeOptions, OverSizeStrategy
from tremula.frontends.poptorch.data.dataloader import DataLoader as PopTorchLoader
from tremula.frontends.poptorch.options.options import Options

# What a sample says about its seeds; it is not padded.
_OF_SEEDS = ("batch_size", "input_id")


class NeighborCollater:
    """Samples around seeds and pads the result."""

    def __init__(
        self, sampler: NeighborLoader, input_type: str | None, collater: FixedSizeCollater
    ):
        self._sampler = sampler
        self._input_type = input_type
        self._collater = collater

    def __call__(self, seeds: list[int]) -> GraphBatch:
        """One batch."""
        sampled = self._sampler(seeds)
        for data in sampled.stores:  # counts per hop would differ from batch to batch
            for name in ("num_sampled_nodes", "num_sampled_edges"):
                data.pop(name, None)
        store = sampled[self._input_type] if self._input_type else sampled
        saved = {name: store[name] for name in _OF_SEEDS if name in store}
        for name in saved:
            del store[name]
        made = self._collater([sampled])
        target = made[self._input_type] if self._input_type else made
        for name, value in saved.items():
            target[name] = value
        return made


class FixedSizeNeighborLoader(PopTorchLoader):
    """Samples neighbours of `batch_size` nodes as PyG's `NeighborLoader`, and pads to one size.

    Arguments are those of `NeighborLoader`, and: `fixed_size_options` (None: the largest of some
    samples), `over_size_strategy` (the default removes random nodes and edges), `add_pad_masks`,
    `follow_batch`, `exclude_keys` and `options` as of `FixedSizeDataLoader`. Others go to
    `poptorch.DataLoader`. The seeds are the first nodes of a batch, as long as none is trimmed.
    """

    def __init__(
        self,
        data: Data | HeteroData | tuple[FeatureStore, GraphStore],
        num_neighbors: list[int] | dict[EdgeType, list[int]],
        input_nodes: InputNodes = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        transform: Callable | None = None,
        transform_sampler_output: Callable | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool = True,  # noqa: ARG002 — PyG's argument; it is always True here
        batch_size: int = 1,
        neighbor_sampler: NeighborSampler | None = None,
        over_size_strategy: OverSizeStrategy = OverSizeStrategy.TrimNodesAndEdges,
        fixed_size_options: FixedSizeOptions | None = None,
        add_pad_masks: bool = True,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        options: Options | None = None,
        **kwargs,
    ):
        sampler = NeighborLoader(
            data, num_neighbors, input_nodes=input_nodes, input_time=input_time, replace=replace,
            subgraph_type=subgraph_type, disjoint=disjoint, temporal_strategy=temporal_strategy,
            time_attr=time_attr, transform=transform,
            transform_sampler_output=transform_sampler_output, is_sorted=is_sorted,
            filter_per_worker=True, neighbor_sampler=neighbor_sampler, batch_size=batch_size,
        )  # fmt: skip
        input_type, nodes, _ = get_input_nodes(data, input_nodes)
        if fixed_size_options is None:
            fixed_size_options = FixedSizeOptions.from_loader(sampler)
        self.fixed_size_options = fixed_size_options
        collater = FixedSizeCollater(
            fixed_size_options,
            add_masks_to_batch=add_pad_masks,
            trim_nodes=over_size_strategy.trims_nodes,
            trim_edges=over_size_strategy.trims_edges,
            follow_batch=follow_batch,
            exclude_keys=exclude_keys,
            sort_edges=True,
        )
        sampling = NeighborCollater(sampler, input_type, collater)
        super().__init__(
            Options() if options is None else options,
            range(len(nodes)),  # pyright: ignore[reportArgumentType] (a sequence will do)
            batch_size=batch_size,
            collate_fn=CombinedBatchingCollater(sampling, mini_batch_size=batch_size),
            **kwargs,
        )
