"""FixedSizeClusterLoader: batches of one size from the clusters of one large graph."""

import torch
from torch_geometric.loader import ClusterData, ClusterLoader

from tremula.frontends.geometric.common import GraphBatch
from tremula.frontends.geometric.fixed_size.collate import (
    CombinedBatchingCollater,
    FixedSizeCollater,
)
from tremula.frontends.geometric.fixed_size.options import FixedSizeOptions, OverSizeStrategy
from tremula.frontends.poptorch.data.dataloader import DataLoader as PopTorchLoader
from tremula.frontends.poptorch.options.options import Options

_UNSUPPORTED = {"collate_fn", "batch_sampler", "shuffle", "exclude_keys"}


class ClusterCollater:
    """Clusters, by number, joined to one graph with the edges between them, and padded."""

    def __init__(self, cluster_data: ClusterData, batch_size: int, collater: FixedSizeCollater):
        self._join = ClusterLoader(cluster_data, batch_size=batch_size)._collate
        self._collater = collater

    def __call__(self, numbers: list[int]) -> GraphBatch:
        """One batch."""
        return self._collater([self._join(numbers)])


def _collater(
    name: str,
    cluster_data: ClusterData,
    options: FixedSizeOptions,
    batch_size: int,
    over_size_strategy: OverSizeStrategy,
    add_pad_masks: bool,
    others: dict[str, object],
) -> ClusterCollater:
    assert options.num_graphs == 2, (
        f"The number of graphs of the fixed size options must be 2 for a {name}, the graph of the "
        f"clusters and one that pads: it is {options.num_graphs}."
    )
    unsupported = sorted(_UNSUPPORTED & set(others))
    assert not unsupported, f"`{name}` does not support the following arguments: {unsupported}."
    collater = FixedSizeCollater(
        options,
        add_masks_to_batch=add_pad_masks,
        trim_nodes=over_size_strategy.trims_nodes,
        trim_edges=over_size_strategy.trims_edges,
    )
    return ClusterCollater(cluster_data, batch_size, collater)


class PyGFixedSizeClusterLoader(torch.utils.data.DataLoader):
    """The loader without PopTorch."""

    def __init__(
        self,
        cluster_data: ClusterData,
        fixed_size_options: FixedSizeOptions,
        batch_size: int = 1,
        over_size_strategy: OverSizeStrategy = OverSizeStrategy.TrimNodesAndEdges,
        add_pad_masks: bool = True,
        **kwargs,
    ):
        collater = _collater(
            "FixedSizeClusterLoader", cluster_data, fixed_size_options, batch_size,
            over_size_strategy, add_pad_masks, kwargs,
        )  # fmt: skip
        super().__init__(
            range(len(cluster_data)),  # pyright: ignore[reportArgumentType] (a sequence will do)
            batch_size=batch_size,
            collate_fn=collater,
            **kwargs,
        )


class FixedSizeClusterLoader(PyGFixedSizeClusterLoader, PopTorchLoader):
    """Joins `batch_size` clusters of a graph to a batch of one size.

    * `cluster_data`: the graph in clusters, as PyG's `ClusterData` makes them.
    * `fixed_size_options`: nodes and edges of a batch; `num_graphs` is 2.
    * `over_size_strategy`: the default removes random nodes and edges if there are too many.
    * `add_pad_masks`, `options`: as of `FixedSizeDataLoader`.
    """

    def __init__(
        self,
        cluster_data: ClusterData,
        fixed_size_options: FixedSizeOptions,
        batch_size: int = 1,
        over_size_strategy: OverSizeStrategy = OverSizeStrategy.TrimNodesAndEdges,
        add_pad_masks: bool = True,
        options: Options | None = None,
        **kwargs,
    ):
        collater = _collater(
            "FixedSizeClusterLoader", cluster_data, fixed_size_options, batch_size,
            over_size_strategy, add_pad_masks, kwargs,
        )  # fmt: skip
        PopTorchLoader.__init__(
            self,
            Options() if options is None else options,
            range(len(cluster_data)),  # pyright: ignore[reportArgumentType] (a sequence will do)
            batch_size=batch_size,
            collate_fn=CombinedBatchingCollater(collater, mini_batch_size=batch_size),
            **kwargs,
        )
