"""GraphColumns: a data set in memory, one array per attribute over all graphs."""

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.data.collate import collate
from torch_geometric.data.data import BaseData

from tremula.base.errors import FileLoadError, InvalidOption
from tremula.base.storage.atomic_file import atomic_file
from tremula.frontends.geometric.common import is_hetero, store_of
from tremula.frontends.geometric.fixed_size.levels import EDGE, GRAPH, NODE, attribute_levels
from tremula.frontends.geometric.packing.sizes import GraphSizes

_FORMAT = 1
# What reading a file that is damaged, or another program's, can raise.
_UNREADABLE = (
    KeyError, OSError, EOFError, ValueError, TypeError, IndexError, AttributeError, zlib.error,
    zipfile.BadZipFile, NotImplementedError, RuntimeError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """One attribute of all graphs: rows of nodes, of edges, or the same number for each graph."""

    values: np.ndarray
    level: str


class GraphColumns(Sequence[Data]):
    """A data set without types whose attributes are tensors; edges of a graph are together.

    Graph i has nodes node_start[i] to node_start[i + 1], edges likewise. `edge_index` is
    [2, n_edges] with places inside each graph. As a data set, it yields `Data` objects.
    """

    def __init__(
        self, columns: Mapping[str, Column], node_start: np.ndarray, edge_start: np.ndarray | None
    ):
        n_graphs = len(node_start) - 1
        self.node_start = np.ascontiguousarray(node_start, np.int64)
        no_edges = np.zeros(n_graphs + 1, np.int64)
        starts = no_edges if edge_start is None else edge_start
        self.edge_start = np.ascontiguousarray(starts, np.int64)
        self.columns = dict(columns)
        self.graph_sizes = GraphSizes(np.diff(self.node_start), np.diff(self.edge_start))
        self._check()

    def _check(self) -> None:
        n_graphs = len(self)
        for name, column in self.columns.items():
            n_rows = column.values.shape[1 if name == "edge_index" else 0]
            expected = {NODE: self.node_start[-1], EDGE: self.edge_start[-1]}.get(column.level)
            if expected is None:
                expected = n_graphs * (n_rows // max(n_graphs, 1))
            if n_rows != expected:
                raise InvalidOption(
                    f"column {name!r} has {n_rows} rows for {n_graphs} graphs, expected "
                    f"{expected} of level {column.level!r}.",
                    hint="give each graph as many rows as it has nodes, or edges, or the same",
                )

    # -- where they come from ----------------------------------------------------------------------

    @classmethod
    def from_dataset(
        cls,
        dataset: Sequence[BaseData],
        exclude_keys: Sequence[str] | None = None,
        *,
        sort_edges: bool = True,
    ) -> "GraphColumns":
        """The columns of an in-memory data set of PyG, or of any sequence of graphs.

        Without `sort_edges`, edges stay in the order of the data set.
        """
        if isinstance(dataset, GraphColumns):
            return dataset.without(exclude_keys or ())
        excluded = set(exclude_keys or ())
        reason = reason_against(dataset, excluded)
        if reason is not None:
            raise InvalidOption(
                f"the data set cannot be held as columns: {reason}.",
                hint="use FixedSizeDataLoader without columns, or exclude the attribute",
            )
        whole, slices = _whole(dataset)
        n_samples = min(64, len(dataset))
        levels = attribute_levels(dataset[i] for i in range(n_samples))
        saved = {k: v for k, v in whole.items() if isinstance(v, Tensor) and k not in excluded}
        columns = {k: Column(v.numpy(), levels[None, k]) for k, v in saved.items()}
        node_key = next(k for k, c in columns.items() if c.level == NODE)
        edge_start = slices["edge_index"].numpy() if "edge_index" in columns else None
        made = cls(columns, slices[node_key].numpy(), edge_start)
        return made.sorted_by_target() if sort_edges else made

    def without(self, keys: Sequence[str]) -> "GraphColumns":
        """These graphs without some attributes."""
        if not set(keys) & set(self.columns):
            return self
        saved = {k: c for k, c in self.columns.items() if k not in set(keys)}
        edges = self.edge_start if "edge_index" in saved else None
        return GraphColumns(saved, self.node_start, edges)

    def with_column(self, name: str, change: Callable[[np.ndarray], np.ndarray]) -> "GraphColumns":
        """These graphs with one attribute recomputed from its values, row by row."""
        column = self.columns[name]
        values = np.ascontiguousarray(change(column.values))
        columns = self.columns | {name: Column(values, column.level)}
        return GraphColumns(columns, self.node_start, self.edge_start)

    def with_edges(self, edge_index: np.ndarray, edge_start: np.ndarray) -> "GraphColumns":
        """These graphs with other edges, such as those within a radius."""
        saved = {k: c for k, c in self.columns.items() if c.level != EDGE}
        columns = saved | {"edge_index": Column(edge_index, EDGE)}
        return GraphColumns(columns, self.node_start, edge_start).sorted_by_target()

    def take(self, graphs: np.ndarray | slice) -> "GraphColumns":
        """Some of the graphs, in an order."""
        places = np.arange(len(self))[graphs]
        nodes, edges = (_rows_of(s, places) for s in (self.node_start, self.edge_start))
        columns = {}
        for name, column in self.columns.items():
            n_each = len(column.values) // max(len(self), 1)
            rows = {NODE: nodes, EDGE: edges}.get(column.level)
            if rows is None:
                rows = (places[:, None] * n_each + np.arange(n_each)).reshape(-1)
            values = column.values[:, rows] if name == "edge_index" else column.values[rows]
            columns[name] = Column(values, column.level)
        sizes = self.graph_sizes
        return GraphColumns(columns, _starts(sizes.nodes[places]), _starts(sizes.edges[places]))

    def sorted_by_target(self) -> "GraphColumns":
        """These graphs with the edges of each in the order of their targets."""
        if "edge_index" not in self.columns:
            return self
        index = self.columns["edge_index"].values
        graph = np.repeat(self.node_start[:-1], self.graph_sizes.edges)
        targets = index[1] + graph
        if (targets[1:] >= targets[:-1]).all():
            return self
        order = np.argsort(targets, kind="stable")
        columns = dict(self.columns)
        for name, column in self.columns.items():
            if column.level == EDGE:
                v = column.values
                columns[name] = Column(v[:, order] if name == "edge_index" else v[order], EDGE)
        return GraphColumns(columns, self.node_start, self.edge_start)

    # -- as a data set -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.node_start) - 1

    def __getitem__(self, index: int) -> Data:  # pyright: ignore[reportIncompatibleMethodOverride]
        i = int(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"there is no graph {i} of {len(self)}")
        i %= len(self)
        return Data(**{name: self._part(name, i) for name in self.columns})

    def _part(self, name: str, i: int) -> Tensor:
        column = self.columns[name]
        if column.level == GRAPH:
            n_each = len(column.values) // len(self)
            begin, end = i * n_each, (i + 1) * n_each
        else:
            starts = self.node_start if column.level == NODE else self.edge_start
            begin, end = starts[i], starts[i + 1]
        values = column.values
        part = values[:, begin:end] if name == "edge_index" else values[begin:end]
        return torch.from_numpy(np.ascontiguousarray(part))

    # -- files -------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write all columns to one file."""
        levels = {name: column.level for name, column in self.columns.items()}
        arrays: dict[str, Any] = {f"column_{n}": c.values for n, c in self.columns.items()}
        header = json.dumps({"format": _FORMAT, "levels": levels})
        with atomic_file(path) as file:
            np.savez(
                file, header=np.array(header), node_start=self.node_start,
            edge_start=self.edge_start, **arrays,
            )  # fmt: skip

    @classmethod
    def load(cls, path: str | Path) -> "GraphColumns":
        """Read what `save` wrote; anything but an intact file is a FileLoadError."""
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls._from_file(file, path)
        except _UNREADABLE as error:
            raise FileLoadError(
                f"{str(path)!r} holds no graphs, or is damaged: {error}.",
                hint="delete the file and make it again",
            ) from error

    @classmethod
    def _from_file(cls, file: Mapping[str, np.ndarray], path: str | Path) -> "GraphColumns":
        header = json.loads(str(file["header"]))
        if header["format"] != _FORMAT:
            raise InvalidOption(
                f"{path} has format {header['format']}, expected {_FORMAT}.",
                hint="delete the file and make it again",
            )
        columns = {
            name: Column(file[f"column_{name}"], level) for name, level in header["levels"].items()
        }
        return cls(columns, file["node_start"], file["edge_start"])


def reason_against(dataset: Sequence[BaseData], excluded: set[str]) -> str | None:
    """Why a data set cannot be columns; None if it can."""
    if isinstance(dataset, GraphColumns):
        return None
    if len(dataset) == 0:
        return "it is empty"
    if getattr(dataset, "transform", None) is not None:
        return "it has a transform, which runs for each graph"
    first = dataset[0]
    if is_hetero(first):
        return "its nodes have types"
    reasons = (
        _reason_against_attribute(first, name, value)
        for name, value in store_of(first).items()
        if name not in excluded
    )
    return next((reason for reason in reasons if reason is not None), None)


def _reason_against_attribute(graph: BaseData, name: str, value: object) -> str | None:
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.dim() == 0:
        return f"attribute {name!r} is not a dense tensor with rows"
    if value.dtype is torch.bfloat16 or value.is_complex():
        return f"attribute {name!r} has the type {value.dtype}, which NumPy copies cannot hold"
    if name == "edge_index":
        return None
    if graph.__cat_dim__(name, value) != 0:
        return f"attribute {name!r} is not joined along its first dimension"
    return (
        f"attribute {name!r} holds numbers of nodes" if _is_increased(graph, name, value) else None
    )


def _is_increased(graph: BaseData, name: str, value: Tensor) -> bool:
    increase = graph.__inc__(name, value)
    return bool(torch.as_tensor(increase).any())


def _whole(dataset: Sequence[BaseData]) -> tuple[dict[str, object], Mapping[str, Tensor]]:
    """All graphs joined, without adding up numbers of nodes, and where each begins."""
    if isinstance(dataset, InMemoryDataset) and dataset._indices is None:
        data, slices = dataset._data, dataset.slices
        if isinstance(slices, dict) and data is not None:
            return data.to_dict(), slices  # pyright: ignore[reportAttributeAccessIssue]
    graphs = [dataset[i] for i in range(len(dataset))]
    whole, slices, _ = collate(type(graphs[0]), graphs, increment=False, add_batch=False)
    return whole.to_dict(), slices  # pyright: ignore[reportReturnType]


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])


def _rows_of(starts: np.ndarray, graphs: np.ndarray) -> np.ndarray:
    """The rows of some graphs, one after the other."""
    sizes = starts[graphs + 1] - starts[graphs]
    new_starts = _starts(sizes)
    return np.arange(new_starts[-1]) + np.repeat(starts[graphs] - new_starts[:-1], sizes)
