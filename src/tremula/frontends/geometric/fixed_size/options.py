"""FixedSizeOptions: how many nodes, edges and graphs every batch of a loader has."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice

from torch_geometric.data.data import BaseData
from tqdm import tqdm

from tremula.frontends.geometric.common import StoreKey, is_hetero

Counts = int | dict[StoreKey, int]  # one number, or one for each type of node or edge
_LARGE_DATASET = 10_000  # from where on PyG shows a progress bar


class FixedSizeStrategy(Enum):
    """How a loader fills its batches.

    PadToMax: the same number of graphs in each. StreamPack: as many as fit, in the order they come.
    HistogramPack: packs planned from the sizes of all graphs, so that hardly any room is left.
    """

    PadToMax = 0
    StreamPack = 1
    HistogramPack = 2


class OverSizeStrategy(Enum):
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
        validate_num_graphs(num_graphs)
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
        progress_bar: bool | None = None,
    ) -> "FixedSizeOptions":
        """Sizes that hold any batch_size - 1 graphs of a data set, and one that pads.

        `sample_limit`: look only at this many graphs. `progress_bar`: show one; None: of large
        data sets, as PyG's summaries do.
        """
        validate_num_graphs(batch_size)
        n_samples = len(dataset) if sample_limit is None else min(sample_limit, len(dataset))
        shows = n_samples >= _LARGE_DATASET if progress_bar is None else progress_bar
        numbers = tqdm(range(n_samples), disable=not shows)
        nodes, edges = _largest(dataset[i] for i in numbers)
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

        The loader is read again, up to `sample_limit` batches in all, as long as a pass brings
        larger ones: one that draws at random may. It may make still larger ones later.
        """
        n_graphs, n_seen = 0, 0
        nodes: Counts = 0
        edges: Counts = 0

        def counted() -> Iterator[BaseData]:
            nonlocal n_graphs, n_seen
            for batch in islice(loader, sample_limit - n_seen):
                n_graphs = max(n_graphs, getattr(batch, "num_graphs", 1))
                n_seen += 1
                yield batch

        while n_seen < sample_limit:
            before = nodes, edges
            nodes, edges = (
                _larger(*pair) for pair in zip(_largest(counted()), before, strict=True)
            )
            if (nodes, edges) == before:
                break
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


def validate_num_graphs(num_graphs: int) -> None:
    """Raise unless a batch has room for a real graph and one that pads."""
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


def _larger(one: Counts, other: Counts) -> Counts:
    """The larger numbers, type by type; `other` may be none yet."""
    if isinstance(one, dict):
        others = other if isinstance(other, dict) else {}
        kinds = [*one, *(kind for kind in others if kind not in one)]
        return {kind: max(one.get(kind, 0), others.get(kind, 0)) for kind in kinds}
    return max(one, total(other))


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
