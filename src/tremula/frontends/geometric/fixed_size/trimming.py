"""Trimming: take random nodes or edges out of graphs that are too large for a batch."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch_geometric.data.data import BaseData
from torch_geometric.data.storage import BaseStorage

from tremula.frontends.geometric.common import StoreKey, stores_of
from tremula.frontends.geometric.fixed_size.levels import EDGE, NODE, Levels, level_of
from tremula.frontends.geometric.fixed_size.options import edge_counts, node_counts

Limits = Mapping[StoreKey, int]


def trim_nodes(graphs: Sequence[BaseData], limits: Limits, levels: Levels) -> list[BaseData]:
    """Graphs with at most `n` nodes of each type together; each keeps at least one it had."""
    saved = _kept([node_counts(graph) for graph in graphs], limits, "nodes")
    if saved is None:
        return list(graphs)
    return [_subgraph(graph, masks, levels) for graph, masks in zip(graphs, saved, strict=True)]


def trim_edges(graphs: Sequence[BaseData], limits: Limits, levels: Levels) -> list[BaseData]:
    """Graphs with at most `n` edges of each type together; each keeps at least one it had."""
    saved = _kept([edge_counts(graph) for graph in graphs], limits, "edges")
    if saved is None:
        return list(graphs)
    return [_with_edges(graph, masks, levels) for graph, masks in zip(graphs, saved, strict=True)]


def _subgraph(graph: BaseData, masks: dict[StoreKey, Tensor], levels: Levels) -> BaseData:
    """The graph of some nodes and the edges between them.

    PyG's own `subgraph` takes attributes for those of nodes or edges by the size they have in one
    graph, where an attribute of the whole graph may have it, too.
    """
    made = copy.copy(graph)
    for key, store in stores_of(made):
        if key in masks:
            if "num_nodes" in store:
                store["num_nodes"] = int(masks[key].sum())
            _select(made, store, key, NODE, masks[key], levels)
    edge_masks = {}
    for key, store in _edge_stores(made):
        ends = (key[0], key[2]) if isinstance(key, tuple) else (None, None)
        sources, targets = store["edge_index"]
        edge_masks[key] = masks[ends[0]][sources] & masks[ends[1]][targets]
        places = [masks[end].cumsum(0) - 1 for end in ends]
        store["edge_index"] = torch.stack([places[0][sources], places[1][targets]])
    return _with_edges(made, edge_masks, levels)


def _with_edges(graph: BaseData, masks: dict[StoreKey, Tensor], levels: Levels) -> BaseData:
    made = copy.copy(graph)
    for key, store in _edge_stores(made):
        _select(made, store, key, EDGE, masks[key], levels)
    return made


def _select(
    graph: BaseData,
    store: BaseStorage,
    key: StoreKey,
    level: str,
    rows: Tensor,
    levels: Levels,
) -> None:
    """Keep rows, by a mask or in an order, of all attributes of one level."""
    places = rows.nonzero().flatten() if rows.dtype == torch.bool else rows
    for name, value in list(store.items()):
        if isinstance(value, Tensor) and level_of(levels, key, name, value) == level:
            store[name] = value.index_select(graph.__cat_dim__(name, value, store), places)


def _edge_stores(graph: BaseData) -> Iterator[tuple[StoreKey, BaseStorage]]:
    return ((key, store) for key, store in stores_of(graph) if "edge_index" in store)


def _kept(
    counts: list[dict[StoreKey, int]], limits: Limits, what: str
) -> list[dict[StoreKey, Tensor]] | None:
    """Which items stay, per graph and type; None if all do."""
    totals = {kind: sum(graph.get(kind, 0) for graph in counts) for kind in limits}
    if all(totals[kind] <= limit for kind, limit in limits.items()):
        return None
    saved: list[dict[StoreKey, Tensor]] = [{} for _ in counts]
    for kind, limit in limits.items():
        sizes = [graph.get(kind, 0) for graph in counts]
        mask = _chosen(sizes, limit, kind, what)
        for graph, part in zip(saved, mask.split(sizes), strict=True):
            graph[kind] = part
    return saved


def _chosen(sizes: list[int], limit: int, kind: object, what: str) -> Tensor:
    """A mask over all items: one of each graph for certain, and others up to the limit."""
    n_items, n_graphs = sum(sizes), sum(size > 0 for size in sizes)
    mask = torch.ones(n_items, dtype=torch.bool)
    if n_items <= limit:
        return mask
    if limit < n_graphs:
        of = "" if kind is None else f" of type {kind!r}"
        raise RuntimeError(
            f"Too many {what} to trim. The batch has {n_graphs} graphs with {n_items} {what}{of}, "
            f"but only {limit} may stay: fewer than graphs, so that some would become empty. Ask "
            f"for a larger num_{what}, or for fewer graphs in a batch."
        )
    score = torch.rand(n_items)
    begin = 0
    for size in sizes:
        if size:
            score[begin + torch.randint(size, (1,))] = 2.0  # stays for certain
        begin += size
    mask[score.argsort()[: n_items - limit]] = False
    return mask


# -- parts of lists, as PopTorch Geometric offers them ---------------------------------------------


def data_slice_gen(num_list: Iterable[int]) -> Iterator[slice]:
    """Where the items of each graph are in a list of all of them."""
    begin = 0
    for n in num_list:
        yield slice(begin, begin + n)
        begin += n


def create_slices_and_preserve_mask(
    max_num: int, num_list: Sequence[int]
) -> tuple[list[slice], Tensor] | tuple[None, None]:
    """Where each graph's items are, and a mask of `max_num` that stay; nothing if all fit.

    At least one item of each graph stays.
    """
    if sum(num_list) < max_num:
        return None, None
    return list(data_slice_gen(num_list)), _chosen(list(num_list), max_num, None, "items")


def sort_by_target(graph: BaseData, levels: Levels) -> BaseData:
    """A graph with its edges, and their attributes, in the order of their targets.

    A graph whose edges are in order already is returned as it is.
    """
    if all(_is_sorted(store["edge_index"][1]) for _, store in _edge_stores(graph)):
        return graph
    made = copy.copy(graph)
    for key, store in _edge_stores(made):
        order = torch.sort(store["edge_index"][1], stable=True).indices
        _select(made, store, key, EDGE, order, levels)
    return made


def _is_sorted(targets: Tensor) -> bool:
    return bool((targets[1:] >= targets[:-1]).all())
