"""FixedSizeNeighborLoader: batches of one size from the sampled neighbours of some nodes."""

import copy
from collections.abc import Callable, Sequence

import torch
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


class PyGFixedSizeNeighborLoader(torch.utils.data.DataLoader):
    """The loader without PopTorch; arguments are those of `FixedSizeNeighborLoader`.

    `nativeCollate` samples around seeds, `fixedSizeCollate` pads what it returns.
    """

    def __init__(
        self,
        data: Data | HeteroData | tuple[FeatureStore, GraphStore],
        num_neighbors: list[int] | dict[EdgeType, list[int]],
        input_nodes: InputNodes = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        directed: bool = True,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        transform: Callable | None = None,
        transform_sampler_output: Callable | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool = True,
        subgraph_type: SubgraphType | str = SubgraphType.directional,
        batch_size: int = 1,
        neighbor_sampler: NeighborSampler | None = None,
        over_size_strategy: OverSizeStrategy = OverSizeStrategy.TrimNodesAndEdges,
        fixed_size_options: FixedSizeOptions | None = None,
        add_pad_masks: bool = False,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        options: Options | None = None,
        **kwargs,
    ):
        if options is not None:
            kwargs["options"] = options
        self._sampler = NeighborLoader(
            data, num_neighbors, input_nodes=input_nodes, input_time=input_time, replace=replace,
            subgraph_type=subgraph_type, directed=directed, disjoint=disjoint,
            temporal_strategy=temporal_strategy, time_attr=time_attr, transform=transform,
            transform_sampler_output=transform_sampler_output, is_sorted=is_sorted,
            filter_per_worker=filter_per_worker, neighbor_sampler=neighbor_sampler,
            batch_size=batch_size,
        )  # fmt: skip
        self._input_type, nodes, _ = get_input_nodes(data, input_nodes)
        if fixed_size_options is None:
            fixed_size_options = FixedSizeOptions.from_loader(self._sampler)
        self.fixed_size_options = fixed_size_options
        self._collater = FixedSizeCollater(
            fixed_size_options,
            add_masks_to_batch=add_pad_masks,
            trim_nodes=over_size_strategy.trims_nodes,
            trim_edges=over_size_strategy.trims_edges,
            follow_batch=follow_batch,
            exclude_keys=exclude_keys,
        )
        super().__init__(
            dataset=range(len(nodes)),  # pyright: ignore[reportArgumentType] (a sequence will do)
            batch_size=batch_size,
            collate_fn=self._collate_fn(batch_size),
            **kwargs,
        )

    def _collate_fn(self, batch_size: int) -> Callable[[list[int]], GraphBatch]:  # noqa: ARG002 (subclasses need it)
        return self._collate

    def _collate(self, seeds: list[int]) -> GraphBatch:
        return self.fixedSizeCollate(self.nativeCollate(seeds))

    def nativeCollate(self, index: list[int]) -> Data | HeteroData:  # noqa: N802 (PopTorch Geometric's)
        """The sampled neighbours of some seeds, by their places among the input nodes."""
        sampled = self._sampler(torch.as_tensor(index).flatten())
        for store in sampled.stores:  # counts per hop would differ from batch to batch
            for name in ("num_sampled_nodes", "num_sampled_edges"):
                store.pop(name, None)
        return sampled

    def fixedSizeCollate(self, data_list: Data | HeteroData) -> GraphBatch:  # noqa: N802
        """A sample, padded; what it says about its seeds stays as it is."""
        sampled = copy.copy(data_list)
        store = sampled[self._input_type] if self._input_type else sampled
        saved = {name: store[name] for name in _OF_SEEDS if name in store}
        for name in saved:
            del store[name]
        made = self._collater([sampled])
        target = made[self._input_type] if self._input_type else made
        for name, value in saved.items():
            target[name] = value
        return made


class FixedSizeNeighborLoader(PyGFixedSizeNeighborLoader, PopTorchLoader):
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
        subgraph_type: SubgraphType | str = SubgraphType.directional,
        replace: bool = False,
        directed: bool = True,
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
        super().__init__(
            data, num_neighbors, input_nodes, input_time, replace, directed, disjoint,
            temporal_strategy, time_attr, transform, transform_sampler_output, is_sorted,
            filter_per_worker=True, subgraph_type=subgraph_type, batch_size=batch_size,
            neighbor_sampler=neighbor_sampler, over_size_strategy=over_size_strategy,
            fixed_size_options=fixed_size_options, add_pad_masks=add_pad_masks,
            follow_batch=follow_batch, exclude_keys=exclude_keys,
            options=Options() if options is None else options, **kwargs,
        )  # fmt: skip

    def _collate_fn(self, batch_size: int) -> Callable[[list[int]], GraphBatch]:
        return CombinedBatchingCollater(self._collate, mini_batch_size=batch_size)
