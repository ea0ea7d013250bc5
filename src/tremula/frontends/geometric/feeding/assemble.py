"""Batches of one size from columns: what the plain collater makes, by one copy per attribute."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from tremula.frontends.geometric.common import GraphBatch, store_of
from tremula.frontends.geometric.feeding import copies
from tremula.frontends.geometric.feeding.columns import GraphColumns
from tremula.frontends.geometric.feeding.threads import shared_out
from tremula.frontends.geometric.fixed_size.collate import (
    check_fits,
    check_n_graphs,
    check_padding_possible,
)
from tremula.frontends.geometric.fixed_size.levels import EDGE, GRAPH, NODE
from tremula.frontends.geometric.fixed_size.options import FixedSizeOptions

# Words that rows are copied in: values of one size share a compiled copy.
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_MASKS = ("graphs_mask", "nodes_mask", "edges_mask")


@dataclass(frozen=True, slots=True)
class RowCopy:
    """How one attribute is copied: all rows as words, words per row, and the word that pads."""

    name: str
    level: str
    words: np.ndarray
    width: int
    padding: np.integer
    start: np.ndarray  # the first row of each graph
    n_each: int  # rows of the attribute that count as one
    tail: tuple[int, ...]  # the shape of a row
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Places:
    """Where the rows of one level go: the first of each graph, and how many each pack uses."""

    n_rows: int  # of a pack
    out_row: np.ndarray
    n_used: np.ndarray


@dataclass(frozen=True)
class ColumnCollater:
    """Collates numbers of graphs: packs of `mini_batch_size`, or all as one pack if it is None.

    Gives what a `CombinedBatchingCollater` over a `FixedSizeCollater` gives; with `is_combined`
    False, what the latter gives. `pin_memory`: a GPU can fetch the result by itself.
    """

    columns: GraphColumns
    options: FixedSizeOptions
    add_masks_to_batch: bool = True
    mini_batch_size: int | None = None
    is_combined: bool = True
    pin_memory: bool = False

    def __call__(self, graphs: Sequence[int]) -> GraphBatch:
        """The joined batches of a list of graphs."""
        size = self.mini_batch_size or len(graphs)
        assert len(graphs) % max(size, 1) == 0, (
            f"Invalid batch size. Got {len(graphs)} graphs and `mini_batch_size={size}`: the first "
            "must be a multiple of the second."
        )
        return self.collate(
            np.asarray(graphs, np.int64), np.arange(0, len(graphs) + 1, max(size, 1))
        )

    def collate_packs(self, packs: Sequence[Sequence[int]]) -> GraphBatch:
        """The joined batches of packs of any number of graphs each."""
        starts = np.zeros(len(packs) + 1, np.int64)
        np.cumsum([len(pack) for pack in packs], out=starts[1:])
        return self.collate(np.concatenate([np.asarray(p, np.int64) for p in packs]), starts)

    def collate(self, graphs: np.ndarray, starts: np.ndarray) -> GraphBatch:
        """The joined batches of packs: `starts` says where in `graphs` each begins."""
        places = self._places(graphs, starts)
        attributes, structure = self._memory(len(starts) - 1)
        for copied in self._copies:
            self._fill_rows(copied, graphs, places[copied.level], attributes[copied.name])
        own = {name: tensor.numpy() for name, tensor in structure.items()}
        copies.fill_structure(
            starts, graphs, self.columns.node_start, places[NODE].n_rows, self.options.num_graphs,
            own["batch"], own["ptr"], own["nodes_mask"], own["graphs_mask"],
        )  # fmt: skip
        if "edge_index" in own:
            self._fill_edges(graphs, starts, own["ptr"], own["edge_index"], own["edges_mask"])
        if not self.add_masks_to_batch:
            for name in _MASKS:
                del structure[name]
        return self._batch(attributes | structure)

    def pin(self, n_packs: int, n_batches: int) -> None:
        """Pin memory for `n` batches at a time; PyTorch keeps it for those that follow."""
        if not self.pin_memory:
            return
        # All stay referenced to the end: freed memory would be returned again.
        blocks = [self._memory(n_packs)]

        def hold(part: slice) -> None:
            blocks.extend([self._memory(n_packs) for _ in range(part.start, part.stop)])

        shared_out(hold, n_batches - 1)

    # -- pieces ------------------------------------------------------------------------------------

    @cached_property
    def _copies(self) -> list[RowCopy]:
        columns, options = self.columns, self.options
        n_graphs = len(columns)
        pads = {
            NODE: options.node_pad_value,
            EDGE: options.edge_pad_value,
            GRAPH: options.graph_pad_value,
        }
        starts = {NODE: columns.node_start, EDGE: columns.edge_start}
        made = []
        for name, column in columns.columns.items():
            if name == "edge_index":
                continue
            values = np.ascontiguousarray(column.values)
            start, n_each = starts.get(column.level), 1
            if start is None:
                # The same number of rows for each graph: they count as one row.
                n_each = len(values) // n_graphs
                values = values.reshape(n_graphs, -1)
                start = np.arange(n_graphs + 1)
            word = _WORDS[values.dtype.itemsize]
            made.append(
                RowCopy(
                    name,
                    column.level,
                    values.reshape(-1).view(word),
                    int(np.prod(values.shape[1:], dtype=np.int64)),
                    np.array([pads[column.level]], values.dtype).view(word)[0],
                    start,
                    n_each,
                    column.values.shape[1:],
                    torch.from_numpy(values[:0]).dtype,
                )
            )
        return made

    @cached_property
    def _edge_index(self) -> np.ndarray:
        return np.ascontiguousarray(self.columns.columns["edge_index"].values, np.int64)

    @cached_property
    def _template(self) -> GraphBatch:
        # PyG makes a new class for each batch that is made from scratch; copies share one.
        made: GraphBatch = Batch(_base_cls=Data)
        made._num_graphs = self.options.num_graphs
        return made

    def _batch(self, tensors: dict[str, Tensor]) -> GraphBatch:
        made = copy.copy(self._template)
        store_of(made)._mapping.update(tensors)
        if self.is_combined:
            made["num_nodes"] = self.options.total_num_nodes
            made["num_edges"] = self._n_edges()
        return made

    def _n_edges(self) -> int:
        return self.options.total_num_edges if "edge_index" in self.columns.columns else 0

    def _places(self, graphs: np.ndarray, starts: np.ndarray) -> dict[str, Places]:
        columns = self.columns
        made = {}
        for level, n_rows, row_starts in (
            (NODE, self.options.total_num_nodes, columns.node_start),
            (EDGE, self._n_edges(), columns.edge_start),
        ):
            out_row, n_used = np.empty_like(graphs), np.empty(len(starts) - 1, np.int64)
            full = copies.place_rows(starts, graphs, row_starts, n_rows, out_row, n_used)
            if full >= 0:
                check_fits(f"{level}s", {None: int(n_used[full])}, {None: n_rows})
            made[level] = Places(n_rows, out_row, n_used)
        n_graphs = self.options.num_graphs
        n_real = starts[1:] - starts[:-1]
        made[GRAPH] = Places(n_graphs, np.empty_like(graphs), n_real)
        copies.place_graphs(starts, n_graphs, made[GRAPH].out_row)
        self._check(n_real, made[NODE], made[EDGE])
        return made

    def _check(self, n_real: np.ndarray, nodes: Places, edges: Places) -> None:
        """Raise what the plain collater raises about the first pack that cannot be padded."""
        n_graphs = self.options.num_graphs
        if (n_real < n_graphs).all() and (nodes.n_used < nodes.n_rows).all():
            return  # each pack has a padding graph and a node for it
        for n, n_nodes, n_edges in zip(n_real, nodes.n_used, edges.n_used, strict=True):
            check_n_graphs(int(n), n_graphs)
            n_free_nodes, n_free_edges = int(nodes.n_rows - n_nodes), int(edges.n_rows - n_edges)
            check_padding_possible(
                int(n), int(n_graphs - n), {None: n_free_nodes}, {None: n_free_edges}
            )

    def _memory(self, n_packs: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a batch of `n` packs consists of, not filled: attributes, and its structure."""
        n_nodes, n_edges = self.options.total_num_nodes, self._n_edges()
        n_graphs = self.options.num_graphs
        n_rows = {NODE: n_nodes, EDGE: n_edges, GRAPH: n_graphs}
        attributes = {
            copied.name: self._empty(
                (n_packs * n_rows[copied.level] * copied.n_each, *copied.tail), copied.dtype
            )
            for copied in self._copies
        }
        structure = {}
        if n_edges:
            structure["edge_index"] = self._empty((2 * n_packs, n_edges), torch.int64)
        structure["batch"] = self._empty((n_packs * n_nodes,), torch.int64)
        structure["ptr"] = self._empty((n_packs * (n_graphs + 1),), torch.int64)
        for name, n in zip(_MASKS, (n_graphs, n_nodes, n_edges), strict=True):
            structure[name] = self._empty((n_packs * n,), torch.bool)
        return attributes, structure

    def _empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, pin_memory=self.pin_memory)

    def _fill_edges(
        self, graphs: np.ndarray, starts: np.ndarray, ptr: np.ndarray, out: np.ndarray,
        mask: np.ndarray,
    ) -> None:  # fmt: skip
        """Edges are most of a batch, so packs are split across threads."""
        n_edges, n_graphs = out.shape[1], self.options.num_graphs

        def fill(packs: slice) -> None:
            first, last = packs.start, packs.stop
            copies.fill_edges(
                starts[first : last + 1], graphs, self.columns.edge_start, self._edge_index,
                ptr[first * (n_graphs + 1) : last * (n_graphs + 1)], n_edges, n_graphs,
                out[2 * first : 2 * last], mask[first * n_edges : last * n_edges],
            )  # fmt: skip

        shared_out(fill, len(starts) - 1)

    def _fill_rows(self, copied: RowCopy, graphs: np.ndarray, places: Places, out: Tensor) -> None:
        """An attribute of all packs."""
        words = out.numpy().reshape(-1).view(copied.words.dtype)
        copies.copy_rows(
            copied.words, copied.start, graphs, places.out_row, copied.width,
            words, places.n_used, places.n_rows, copied.padding,
        )  # fmt: skip
