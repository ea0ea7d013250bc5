"""Padding graphs: how nodes and edges are shared among them, and the graphs themselves."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.data.storage import BaseStorage

from tremula.frontends.geometric.common import GraphBatch, StoreKey, is_hetero, stores_of
from tremula.frontends.geometric.fixed_size.levels import EDGE, GRAPH, NODE, Levels, level_of
from tremula.frontends.geometric.fixed_size.options import FixedSizeOptions


def shares(n_items: int, n_graphs: int) -> list[int]:
    """Items of each graph, divided as evenly as possible; earlier graphs get the extra ones."""
    n_each, n_extra = divmod(n_items, n_graphs)
    return [n_each + (i < n_extra) for i in range(n_graphs)]


def edge_shares(n_edges: int, nodes: list[int]) -> list[int]:
    """How many edges each padding graph gets; graphs without nodes cannot have any."""
    n_graphs = sum(n > 0 for n in nodes)
    if n_graphs == 0:
        return [0] * len(nodes)
    return shares(n_edges, n_graphs) + [0] * (len(nodes) - n_graphs)


def ring_edges(n_edges: int, n_sources: int, n_targets: int) -> Tensor:
    """Edges spread over all nodes and sorted by target, so that no node collects many."""
    targets = torch.arange(n_edges) * n_targets // max(n_edges, 1)
    sources = (targets * n_sources // max(n_targets, 1) + 1) % max(n_sources, 1)
    return torch.stack([sources, targets])


def padding_graph(
    first: BaseData,
    levels: Levels,
    options: FixedSizeOptions,
    nodes: Mapping[StoreKey, int],
    edges: Mapping[StoreKey, int],
    exclude_keys: set[str],
) -> BaseData:
    """A graph like `first` of these nodes and edges, by type, filled with the pad values."""
    made: GraphBatch = HeteroData() if is_hetero(first) else Data()
    for key, store in stores_of(first):
        target = made if key is None else made[key]
        for name, value in store.items():
            if name in exclude_keys or name == "ptr":
                continue
            target[name] = _padded(name, value, key, first, store, levels, options, nodes, edges)
    return made


def _padded(  # noqa: PLR0917 — all of what decides about one value
    name: str,
    value: object,
    key: StoreKey,
    data: BaseData,
    store: BaseStorage,
    levels: Levels,
    options: FixedSizeOptions,
    nodes: Mapping[StoreKey, int],
    edges: Mapping[StoreKey, int],
) -> object:
    if name == "num_nodes":
        return nodes[key]
    if name == "edge_index":
        assert isinstance(value, Tensor), "the ends of edges are a tensor"
        source, target = (key[0], key[2]) if isinstance(key, tuple) else (None, None)
        return ring_edges(edges[key], nodes[source], nodes[target]).to(value.dtype)
    if not isinstance(value, Tensor):
        return options.pad_graph_defaults.get(name, value)
    level = level_of(levels, key, name, value)
    if level == GRAPH:
        return torch.full_like(value, options.graph_pad_value)
    shape = list(value.shape)
    n_rows = {NODE: nodes, EDGE: edges}[level][key]
    shape[data.__cat_dim__(name, value, store)] = n_rows
    fill = options.node_pad_value if level == NODE else options.edge_pad_value
    return value.new_full(shape, fill)
