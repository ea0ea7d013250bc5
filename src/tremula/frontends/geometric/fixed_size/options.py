"""FixedSizeOptions: how many nodes, edges and graphs every batch of a loader has."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice

from torch_geometric.data.data import BaseData

from tremula.frontends.geometric.common import StoreKey, is_hetero

Counts = int | dict[StoreKey, int]  # one number, or one for each type of node or edge


class FixedSizeStrategy(IntEnum):
    """How a loader fills its batches.

    PadToMax: the same number of graphs in each. StreamPack: as many as fit, in the order they come.
    HistogramPack: packs planned from the sizes of all graphs, so that hardly any room is left.
    """

    PadToMax = 0
    StreamPack = 1
    HistogramPack = 2


class OverSizeStrategy(IntEnum):
    """What happens to graphs that do not fit into a batch."""

    Error = 0
    Skip = 1
    TrimNodes = 2
    TrimEdges = 3
    TrimNodesAndEdges = 4

    @property
    def trims_nodes(self) -> bool:
        return self in (OverSizeStrategy.TrimNodes, OverSizeStrategy.TrimNodesAndEdges)

    @property
    def trims_edges(self) -> bool:
        return self in (OverSizeStrategy.TrimEdges, OverSizeStrategy.TrimNodesAndEdges)


class FixedSizeOptions:
    """The size of a batch after padding, and what padding is made of.

    * `num_nodes`, `num_edges`: in the whole batch; for data with types, of every type, or a
      dictionary with a number for each. Edges default to n·(n-1) of all n nodes.
    * `num_graphs`: real ones and at least one that only pads, so at least 2.
    * `node_pad_value`, `edge_pad_value`, `graph_pad_value`: fill attributes of each level; 0.
    * `pad_graph_defaults`: values that are not tensors, by key; default: the first graph's.
    """

    def __init__(
        self,
        num_nodes: Counts,
        num_edges: Counts | None = None,
        num_graphs: int = 2,
        node_pad_value: float | None = None,
        edge_pad_value: float | None = None,
        graph_pad_value: float | None = None,
        pad_graph_defaults: dict[str, object] | None = None,
    ):
        _check_num_graphs(num_graphs)
        _check_counts("num_nodes", num_nodes)
        if num_edges is None:
            n_nodes = total(num_nodes)
            num_edges = n_nodes * (n_nodes - 1)
        else:
            _check_counts("num_edges", num_edges)
        self.num_nodes: Counts = num_nodes
        self.num_edges: Counts = num_edges
        self.num_graphs = num_graphs
        self.node_pad_value = 0.0 if node_pad_value is None else node_pad_value
        self.edge_pad_value = 0.0 if edge_pad_value is None else edge_pad_value
        self.graph_pad_value = 0.0 if graph_pad_value is None else graph_pad_value
        self.pad_graph_defaults = dict(pad_graph_defaults or {})

    def is_hetero(self) -> bool:
        """Whether there is a number for each type of node and of edge."""
        return isinstance(self.num_nodes, dict) and isinstance(self.num_edges, dict)

    def to_hetero(
        self, node_types: Iterable[str], edge_types: Iterable[tuple[str, str, str]]
    ) -> "FixedSizeOptions":
        """Give each type the number that was meant for all; changes these options."""
        if not isinstance(self.num_nodes, dict):
            self.num_nodes = dict.fromkeys(node_types, self.num_nodes)
        if not isinstance(self.num_edges, dict):
            self.num_edges = dict.fromkeys(edge_types, self.num_edges)
        return self

    @property
    def total_num_nodes(self) -> int:
        """Nodes of all types together."""
        return total(self.num_nodes)

    @property
    def total_num_edges(self) -> int:
        """Edges of all types together."""
        return total(self.num_edges)

    @classmethod
    def from_dataset(
        cls,
        dataset: Sequence[BaseData],
        batch_size: int,
        sample_limit: int | None = None,
        progress_bar: bool | None = None,  # noqa: ARG003 — the pass is short; kept for callers
    ) -> "FixedSizeOptions":
        """Sizes that hold any batch_size - 1 graphs of a data set, and one that pads.

        `sample_limit`: look only at this many graphs.
        """
        _check_num_graphs(batch_size)
        n_samples = len(dataset) if sample_limit is None else min(sample_limit, len(dataset))
        nodes, edges = _largest(dataset[i] for i in range(n_samples))
        return cls(
            num_nodes=_mapped(nodes, lambda n: n * (batch_size - 1) + 1),
            num_edges=_mapped(edges, lambda n: n * (batch_size - 1) + 1),
            num_graphs=batch_size,
        )

    @classmethod
    def from_loader(
        cls, loader: Iterable[BaseData], sample_limit: int = 1000
    ) -> "FixedSizeOptions":
        """Sizes of the largest of some batches of a loader, and one more of everything.

        A loader that shuffles may make larger ones later.
        """
        n_graphs = 0

        def counted() -> Iterator[BaseData]:
            nonlocal n_graphs
            for batch in islice(loader, sample_limit):
                n_graphs = max(n_graphs, getattr(batch, "num_graphs", 1))
                yield batch

        nodes, edges = _largest(counted())
        return cls(
            num_nodes=_mapped(nodes, lambda n: n + 1),
            num_edges=_mapped(edges, lambda n: n + 1),
            num_graphs=n_graphs + 1,
        )

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"num_{what}s={getattr(self, f'num_{what}s')} "
            f"(At least one {what} reserved for padding)"
            for what in ("node", "edge", "graph")
        )
        values = ", ".join(
            f"{name}={getattr(self, name)}"
            for name in (
                "node_pad_value", "edge_pad_value", "graph_pad_value", "pad_graph_defaults",
            )
        )  # fmt: skip
        return f"{type(self).__name__}({sizes}, {values})"


def total(counts: Counts) -> int:
    """The sum over types."""
    return sum(counts.values()) if isinstance(counts, dict) else counts


def _check_num_graphs(num_graphs: int) -> None:
    if num_graphs < 2:
        raise ValueError(
            f"The number of graphs in the batch must be at least 2, got {num_graphs}: at least 1 "
            "real graph, and a graph reserved for padding the batch to a fixed size."
        )


def _check_counts(name: str, counts: Counts) -> None:
    for value in counts.values() if isinstance(counts, dict) else [counts]:
        if not isinstance(value, int) or value < 0:
            raise ValueError(
                f"{name} must be a whole number, or a dictionary of them by type: got {counts!r}."
            )


def _mapped(counts: Counts, function: Callable[[int], int]) -> Counts:
    if isinstance(counts, dict):
        return {kind: function(n) for kind, n in counts.items()}
    return function(counts)


def _largest(samples: Iterable[BaseData]) -> tuple[Counts, Counts]:
    """The most nodes and edges that one of the samples has, per type where there are types."""
    nodes: dict[StoreKey, int] = {}
    edges: dict[StoreKey, int] = {}
    has_types = False
    for data in samples:
        has_types = is_hetero(data)
        for kind, n in node_counts(data).items():
            nodes[kind] = max(nodes.get(kind, 0), n)
        for kind, n in edge_counts(data).items():
            edges[kind] = max(edges.get(kind, 0), n)
    if not nodes:
        raise ValueError("There is no graph to take sizes from: the data set is empty.")
    return (nodes, edges) if has_types else (nodes[None], edges[None])


def node_counts(data: BaseData) -> dict[StoreKey, int]:
    """Nodes by type; the type of a graph without types is None."""
    if is_hetero(data):
        return {kind: store.num_nodes or 0 for kind, store in data.node_items()}
    return {None: data.num_nodes or 0}


def edge_counts(data: BaseData) -> dict[StoreKey, int]:
    """Edges by type."""
    if is_hetero(data):
        return {kind: store.num_edges for kind, store in data.edge_items()}
    return {None: data.num_edges}
