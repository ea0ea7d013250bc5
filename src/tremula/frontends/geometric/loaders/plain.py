"""Loaders without PopTorch: torch's DataLoader with PyG's collater, or with one of fixed sizes."""

from collections.abc import Sequence

import torch
from torch_geometric.data.data import BaseData

from tremula.frontends.geometric.fixed_size.collate import Collater
from tremula.frontends.geometric.fixed_size.options import (
    FixedSizeOptions,
    FixedSizeStrategy,
    OverSizeStrategy,
)
from tremula.frontends.geometric.loaders.arguments import (
    FixedSizeArguments,
    Numbers,
    sizes_from,
)


class DataLoader(torch.utils.data.DataLoader):
    """Batches of `batch_size` graphs, as large as they come out."""

    def __init__(
        self,
        dataset: Sequence[BaseData],
        batch_size: int = 1,
        shuffle: bool = False,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        **kwargs,
    ):
        kwargs.pop("collate_fn", None)
        self.follow_batch, self.exclude_keys = follow_batch, exclude_keys
        super().__init__(
            dataset,  # pyright: ignore[reportArgumentType] (any sequence will do)
            batch_size=batch_size,
            shuffle=shuffle,
            collate_fn=Collater(follow_batch, exclude_keys),
            **kwargs,
        )


class FixedSizeDataLoader(torch.utils.data.DataLoader):
    """Batches that all have the size of `fixed_size_options`; see the one of PopTorch."""

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
        *,
        sort_edges: bool = False,
        num_nodes: int | None = None,
        num_edges: int | None = None,
        **kwargs,
    ):
        fixed_size_options = sizes_from(fixed_size_options, batch_size, num_nodes, num_edges)
        values = FixedSizeArguments(
            dataset, batch_size, shuffle, fixed_size_options, fixed_size_strategy,
            over_size_strategy, add_pad_masks, follow_batch, exclude_keys, sort_edges, kwargs,
        )  # fmt: skip
        self.fixed_size_options = options = values.options()
        self.padded_batch_size = batch_size
        by_columns = values.column_collater(options, is_combined=False)
        super().__init__(
            dataset if by_columns is None else Numbers(dataset),  # pyright: ignore[reportArgumentType]
            collate_fn=values.collater(options) if by_columns is None else by_columns,
            **values.sampling(options),
            **kwargs,
        )
