"""`torch_geometric.datasets.QM9` from the package qm9pack: the same constructor, no download."""

from collections.abc import Callable
from typing import Any

import torch
from torch_geometric.data import Data, InMemoryDataset

from tremula.garden.models.datasets.qm9 import qm9

N_TARGETS = 19  # of PyG's data set; the package has the first 12


class QM9(InMemoryDataset):
    """Molecules with atoms `z`, positions `pos` and targets `y` [1, 19]; 4 is the gap.

    Scripts written for PyG's class run with it. What PyG computes from bonds (`x`, `edge_index`,
    `edge_attr`) is not there, targets after the twelfth are NaN, and `root` is not used: the cache
    of Tremula is.
    """

    def __init__(
        self,
        root: str | None = None,  # noqa: ARG002 — PyG's argument
        transform: Callable[[Data], Any] | None = None,
        pre_transform: Callable[[Data], Any] | None = None,
        pre_filter: Callable[[Data], bool] | None = None,
        *,
        n_molecules: int | None = None,
        **_kwargs: object,
    ):
        super().__init__(None, transform)
        graphs = [_with_all_targets(graph) for graph in qm9(n_molecules)]
        if pre_filter is not None:
            graphs = [graph for graph in graphs if pre_filter(graph)]
        if pre_transform is not None:
            graphs = [pre_transform(graph) for graph in graphs]
        self._data, self.slices = self.collate(graphs)


def _with_all_targets(graph: Data) -> Data:
    known = graph.y
    assert isinstance(known, torch.Tensor), "molecules have targets"
    missing = known.new_full((1, N_TARGETS - known.shape[1]), torch.nan)
    graph.y = torch.cat([known, missing], 1)
    return graph
