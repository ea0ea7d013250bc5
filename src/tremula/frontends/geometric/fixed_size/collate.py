"""Collaters: lists of graphs to batches, of any size, of one size, and several at a time."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.loader.dataloader import Collater as _PyGCollater

from tremula.frontends.geometric.args_parser import PyGArgsParser
from tremula.frontends.geometric.common import GraphBatch, StoreKey, is_hetero
from tremula.frontends.geometric.fixed_size.levels import Levels, attribute_levels
from tremula.frontends.geometric.fixed_size.options import (
    Counts,
    FixedSizeOptions,
    edge_counts,
    node_counts,
)
from tremula.frontends.geometric.fixed_size.padding import edge_shares, padding_graph, shares
from tremula.frontends.geometric.fixed_size.trimming import sort_by_target, trim_edges, trim_nodes

_PARSER = PyGArgsParser()


def make_exclude_keys(include_keys: Iterable[str], data: BaseData) -> tuple[str, ...]:
    """All keys of a data object but these: for the `exclude_keys` of loaders and collaters."""
    included = set(include_keys)
    return tuple(key for key in data.keys() if key not in included)  # noqa: SIM118 — no mapping


class Collater(_PyGCollater):
    """PyG's collater, which needs no data set here."""

    def __init__(
        self,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
    ):
        super().__init__([], list(follow_batch or []), list(exclude_keys or []))


class FixedSizeCollater(Collater):
    """Collates graphs to a batch of the size that the options say.

    Real graphs come first, then padding graphs, over which padding nodes and edges are divided
    evenly. Edges of a padding graph stay inside it and are spread over its nodes.

    * `add_masks_to_batch`: boolean `graphs_mask`, `nodes_mask`, `edges_mask`; True: not padding.
    * `trim_nodes`, `trim_edges`: take random ones out if there are too many.
    * `sort_edges`: bring the edges of each graph in the order of their targets.
    * `follow_batch`, `exclude_keys`: as PyG's.
    """

    def __init__(
        self,
        fixed_size_options: FixedSizeOptions,
        add_masks_to_batch: bool = False,
        trim_nodes: bool = False,
        trim_edges: bool = False,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        *,
        sort_edges: bool = False,
        levels: Levels | None = None,
    ):
        super().__init__(follow_batch, exclude_keys)
        self.fixed_size_options = fixed_size_options
        self.add_masks_to_batch = add_masks_to_batch
        self.trim_nodes = trim_nodes
        self.trim_edges = trim_edges
        self.sort_edges = sort_edges
        self._levels: Levels = dict(levels or {})

    def __call__(self, batch: list[BaseData]) -> GraphBatch:
        """The batch of a list of graphs; the list stays as it is."""
        if not isinstance(batch, list):
            raise TypeError(f"Expected list, got {type(batch).__name__}.")
        if not batch:
            raise ValueError(
                "Expected at least one graph, got an empty list: padding graphs are made like it."
            )
        first = batch[0]
        if isinstance(first, HeteroData) and not self.fixed_size_options.is_hetero():
            self.fixed_size_options.to_hetero(first.node_types, first.edge_types)
        self._levels |= attribute_levels(batch, self._levels)
        graphs = self._trimmed(batch)
        if self.sort_edges:
            graphs = [sort_by_target(graph, self._levels) for graph in graphs]
        nodes, edges = counts_of(graphs)
        padding = self._padding(graphs, nodes, edges)
        made = super().__call__(graphs + padding)
        if self.add_masks_to_batch:
            add_masks(made, len(graphs), nodes, edges)
        return made

    def _limits(self, graphs: list[BaseData]) -> tuple[dict[StoreKey, int], dict[StoreKey, int]]:
        options, first = self.fixed_size_options, graphs[0]
        return (
            by_type(options.num_nodes, node_counts(first), "num_nodes"),
            by_type(options.num_edges, edge_counts(first), "num_edges"),
        )

    def _trimmed(self, graphs: list[BaseData]) -> list[BaseData]:
        max_nodes, max_edges = self._limits(graphs)
        has_padding_graph = len(graphs) < self.fixed_size_options.num_graphs
        if self.trim_nodes:
            # One node stays for the padding graph, so that padding edges have an end.
            limits = {kind: n - has_padding_graph for kind, n in max_nodes.items()}
            graphs = trim_nodes(graphs, limits, self._levels)
        return trim_edges(graphs, max_edges, self._levels) if self.trim_edges else list(graphs)

    def _padding(
        self, graphs: list[BaseData], nodes: dict[StoreKey, int], edges: dict[StoreKey, int]
    ) -> list[BaseData]:
        """The padding graphs; raises if the real ones are too many or too large."""
        options, (max_nodes, max_edges) = self.fixed_size_options, self._limits(graphs)
        n_padding = options.num_graphs - len(graphs)
        check_n_graphs(len(graphs), options.num_graphs)
        check_fits("nodes", nodes, max_nodes)
        check_fits("edges", edges, max_edges)
        pad_nodes = {kind: n - nodes[kind] for kind, n in max_nodes.items()}
        pad_edges = {
            kind: n - edges[kind] if _has_edges(graphs[0], kind) else 0
            for kind, n in max_edges.items()
        }
        check_padding_possible(len(graphs), n_padding, pad_nodes, pad_edges)
        if n_padding == 0:
            return []
        nodes_by_graph = {kind: shares(n, n_padding) for kind, n in pad_nodes.items()}
        edges_by_graph = {
            kind: edge_shares(n, _ends(kind, nodes_by_graph)) for kind, n in pad_edges.items()
        }
        excluded = set(self.exclude_keys or [])
        return [
            padding_graph(
                graphs[0],
                self._levels,
                options,
                {kind: counts[i] for kind, counts in nodes_by_graph.items()},
                {kind: counts[i] for kind, counts in edges_by_graph.items()},
                excluded,
            )
            for i in range(n_padding)
        ]


class MissingTypeError(RuntimeError, AssertionError):
    """Data have a type that the options give no size for; PopTorch Geometric asserts it."""


def by_type(counts: Counts, present: dict[StoreKey, int], name: str) -> dict[StoreKey, int]:
    """The limit of each type that occurs; one number holds for all types."""
    if not isinstance(counts, dict):
        return dict.fromkeys(present, counts)
    missing = [kind for kind in present if kind not in counts]
    if missing:
        raise MissingTypeError(
            f"{name} of the FixedSizeOptions has no entry for {missing[0]!r}, which the data has: "
            f"there are entries for {list(counts)}."
        )
    return {kind: counts[kind] for kind in present}


def counts_of(graphs: Sequence[BaseData]) -> tuple[dict[StoreKey, int], dict[StoreKey, int]]:
    """All nodes and edges of some graphs, by type."""
    nodes = dict.fromkeys(node_counts(graphs[0]), 0)
    edges = dict.fromkeys(edge_counts(graphs[0]), 0)
    for graph in graphs:
        for kind, n in node_counts(graph).items():
            nodes[kind] = nodes.get(kind, 0) + n
        for kind, n in edge_counts(graph).items():
            edges[kind] = edges.get(kind, 0) + n
    return nodes, edges


def check_n_graphs(n_graphs: int, limit: int) -> None:
    """Raise if there are more graphs than a batch has."""
    if n_graphs > limit:
        raise RuntimeError(
            f"Too many graphs in the batch. Requested {limit} graphs, padding included, but the "
            f"list has {n_graphs}."
        )


def check_fits(what: str, counts: dict[StoreKey, int], limits: dict[StoreKey, int]) -> None:
    """Raise if there are more nodes, or edges, than a batch has."""
    for kind, n in counts.items():
        if n > limits[kind]:
            of = "" if kind is None else f" of type {kind!r}"
            raise RuntimeError(
                f"Graphs in the batch are too large. Requested num_{what}={limits[kind]} {what}"
                f"{of}, but the batch has {n} {what}. Ask for more, or use `trim_{what}` "
                f"(OverSizeStrategy.Trim{what.capitalize()}) to remove some at random."
            )


def check_padding_possible(
    n_graphs: int, n_padding: int, nodes: dict[StoreKey, int], edges: dict[StoreKey, int]
) -> None:
    """Raise if there is padding to add and nothing to add it to."""
    if n_padding == 0 and (any(nodes.values()) or any(edges.values())):
        raise RuntimeError(
            f"Requested to pad a batch to {n_graphs} graphs, but the list has {n_graphs} graphs "
            "already: there is no padding graph that could take the padding nodes and edges. Give "
            "at least one graph less than num_graphs."
        )
    for kind, n in edges.items():
        if n and not all(nodes[end] for end in _end_types(kind)):
            raise RuntimeError(
                f"The batch needs {n} padding edges, but all of its nodes are real ones, so that "
                "they have no ends. Ask for at least one more node in num_nodes."
            )


def _end_types(kind: StoreKey) -> tuple[StoreKey, ...]:
    return (kind[0], kind[2]) if isinstance(kind, tuple) else (None,)


def _ends(kind: StoreKey, nodes_by_graph: dict[StoreKey, list[int]]) -> list[int]:
    """Nodes of each padding graph at the end of an edge that has fewer of them."""
    return list(map(min, zip(*(nodes_by_graph[end] for end in _end_types(kind)), strict=True)))


def _has_edges(data: BaseData, kind: StoreKey) -> bool:
    if isinstance(data, HeteroData) and kind is not None:
        return "edge_index" in data[kind]
    return "edge_index" in data


def add_masks(
    batch: GraphBatch, n_graphs: int, nodes: dict[StoreKey, int], edges: dict[StoreKey, int]
) -> None:
    """Say of each graph, node and edge whether it is real."""
    batch.graphs_mask = torch.arange(batch.num_graphs) < n_graphs
    if is_hetero(batch):
        for kind, store in batch.node_items():
            store.nodes_mask = torch.arange(store.num_nodes) < nodes[kind]
        for kind, store in batch.edge_items():
            store.edges_mask = torch.arange(store.num_edges) < edges[kind]
    else:
        # Both counts first: a mask would count among the attributes that PyG infers them from.
        n_nodes, n_edges = batch.num_nodes, batch.num_edges
        batch.nodes_mask = torch.arange(n_nodes) < nodes[None]
        batch.edges_mask = torch.arange(n_edges) < edges[None]


class CombinedBatchingCollater:
    """Collates what one call of a model consumes: several batches, joined along dimension 0.

    The list is cut into pieces of `mini_batch_size` (None: it is one piece), each is collated by
    itself. `num_nodes`, `num_edges` and `num_graphs` of the result are those of one batch.
    """

    def __init__(self, collater: Callable[[list], GraphBatch], mini_batch_size: int | None = None):
        self.collater = collater
        self.mini_batch_size = mini_batch_size

    def __call__(self, batch: list) -> GraphBatch:
        """The joined batches of a list of graphs."""
        size = len(batch) if self.mini_batch_size is None else self.mini_batch_size
        assert len(batch) % max(size, 1) == 0, (
            f"Invalid batch size. Got {len(batch)} graphs and `mini_batch_size={size}`: the first "
            "must be a multiple of the second."
        )
        parts = [self.collater(batch[i : i + size]) for i in range(0, len(batch), size)]
        columns = zip(*(_PARSER.yieldTensors(part) for part in parts), strict=True)
        return _PARSER.reconstruct(parts[0], iter([torch.cat(column) for column in columns]))
