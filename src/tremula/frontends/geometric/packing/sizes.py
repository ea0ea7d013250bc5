"""Nodes and edges of every graph of a data set, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch_geometric.data import InMemoryDataset
from torch_geometric.data.data import BaseData


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """Nodes and edges of graph i, all types together: int64[n_graphs] each."""

    nodes: np.ndarray
    edges: np.ndarray

    def __len__(self) -> int:
        return len(self.nodes)


def sizes_of(dataset: Sequence[BaseData]) -> GraphSizes:
    """The sizes of all graphs: from the places where they begin if the data set has them."""
    known = getattr(dataset, "graph_sizes", None)
    if isinstance(known, GraphSizes):
        return known
    result = _from_slices(dataset) if isinstance(dataset, InMemoryDataset) else None
    if result is not None:
        return result
    n_graphs = len(dataset)
    nodes, edges = np.empty(n_graphs, np.int64), np.empty(n_graphs, np.int64)
    for i in range(n_graphs):
        data = dataset[i]
        nodes[i], edges[i] = data.num_nodes or 0, data.num_edges
    return GraphSizes(nodes, edges)


def _from_slices(dataset: InMemoryDataset) -> GraphSizes | None:
    """The sizes by slices of attributes that have a row per node and per edge."""
    slices = dataset.slices
    if dataset.transform is not None or not isinstance(slices, dict):
        return None
    node_key = next((key for key in ("x", "pos", "z") if key in slices), None)
    if node_key is None:
        return None
    rows = np.asarray(list(dataset.indices()))
    nodes = np.diff(slices[node_key].numpy())[rows]
    has_edges = "edge_index" in slices
    edges = np.diff(slices["edge_index"].numpy())[rows] if has_edges else np.zeros_like(nodes)
    return GraphSizes(nodes.astype(np.int64), edges.astype(np.int64))
