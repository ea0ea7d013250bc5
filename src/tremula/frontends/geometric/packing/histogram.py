"""HistogramPackingSampler: packs planned once from the sizes of all graphs, shuffled each epoch.

The way of arXiv 2209.06354: sizes are counted, and packs are made of sizes, longest first, each
into the pack it fits best. So planning does not depend on which graph has which size, and every
epoch deals the graphs of each size to the packs that want one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Sampler
from torch_geometric.data.data import BaseData

from tremula.frontends.geometric.packing.best_fit import best_fit
from tremula.frontends.geometric.packing.even import even_packs
from tremula.frontends.geometric.packing.sizes import GraphSizes, sizes_of
from tremula.frontends.geometric.packing.stream import check_limits


@dataclass(frozen=True, slots=True)
class PackPlan:
    """Which sizes share a pack: slot s of pack p takes a graph of class slot_class[s].

    Slots pack_start[p] to pack_start[p + 1] are those of pack p. class_of_graph is -1 for a graph
    that fits into no pack.
    """

    pack_start: np.ndarray
    slot_class: np.ndarray
    class_of_graph: np.ndarray

    def __len__(self) -> int:
        return len(self.pack_start) - 1


def plan_packs(
    sizes: GraphSizes, max_num_graphs: int, max_num_nodes: int, max_num_edges: int
) -> PackPlan:
    """The packs for graphs of these sizes.

    Graphs of as many nodes are of one class as long as the edge limit allows: a class counts as
    having the most edges of its graphs. Where that wastes packs, edges make classes, too; where
    nodes and edges both bind, packs are made even.
    """
    by_nodes = _plan(sizes, sizes.nodes, max_num_graphs, max_num_nodes, max_num_edges)
    n_ideal = -(-int(sizes.nodes.sum()) // max(max_num_nodes, 1))
    if by_nodes is not None and len(by_nodes) <= 1.01 * n_ideal:
        return by_nodes
    width = int(sizes.edges.max(initial=0)) + 1
    keys = sizes.nodes * width + sizes.edges
    by_both = _plan(sizes, keys, max_num_graphs, max_num_nodes, max_num_edges)
    assert by_both is not None, "classes of one size always fit, or are left out"
    best = by_both if by_nodes is None or len(by_both) < len(by_nodes) else by_nodes
    even = _even_plan(sizes, by_both, max_num_graphs, (max_num_nodes, max_num_edges), len(best))
    return best if even is None else even


def _even_plan(
    sizes: GraphSizes, by_both: PackPlan, max_num_graphs: int, limits: tuple[int, int], n_best: int
) -> PackPlan | None:
    """The classes of a plan in fewer packs, if packs that are all alike need fewer."""
    fitting = by_both.class_of_graph >= 0
    own = (sizes.nodes[fitting], sizes.edges[fitting])
    packs = even_packs(own, limits, max_num_graphs, n_best)
    if packs is None:
        return None
    pack_start = np.concatenate([[0], np.cumsum(np.bincount(packs))])
    by_pack = np.argsort(packs, kind="stable")
    return PackPlan(pack_start, by_both.class_of_graph[fitting][by_pack], by_both.class_of_graph)


def _plan(
    sizes: GraphSizes, keys: np.ndarray, max_num_graphs: int, max_num_nodes: int, max_num_edges: int
) -> PackPlan | None:
    """Packs of classes with these keys; None if one of a class fits and another does not."""
    fits = (sizes.nodes <= max_num_nodes) & (sizes.edges <= max_num_edges)
    known, class_of_fitting = np.unique(keys[fits], return_inverse=True)
    class_of_graph = np.full(len(sizes), -1, np.int64)
    class_of_graph[fits] = class_of_fitting
    n_classes = len(known)
    nodes, edges = np.zeros(n_classes, np.int64), np.zeros(n_classes, np.int64)
    np.maximum.at(nodes, class_of_fitting, sizes.nodes[fits])
    np.maximum.at(edges, class_of_fitting, sizes.edges[fits])
    n_of_class = np.bincount(class_of_fitting, minlength=n_classes)
    order = np.lexsort((edges, nodes))[::-1].copy()
    n_slots = int(n_of_class.sum())
    slot_pack = np.empty(n_slots, np.int64)
    slot_class = np.empty(n_slots, np.int64)
    n_packs = best_fit(
        order, nodes, edges, n_of_class, max_num_graphs, max_num_nodes, max_num_edges,
        slot_pack, slot_class,
    )  # fmt: skip
    by_pack = np.argsort(slot_pack, kind="stable")
    pack_start = np.concatenate([[0], np.cumsum(np.bincount(slot_pack, minlength=n_packs))])
    return PackPlan(pack_start, slot_class[by_pack], class_of_graph)


class HistogramPackingSampler(Sampler[list[int]]):
    """Yields packs of graphs within limits of graphs, nodes and edges; hardly any room is left.

    `shuffle`: each epoch deals the graphs of each size again and changes the order of packs, from
    `seed` and the number of the epoch. A graph that fits into no pack is an error, or left out with
    `allow_skip_data`.
    """

    def __init__(
        self,
        data_source: Sequence[BaseData] | GraphSizes,
        max_num_graphs: int,
        max_num_nodes: int | None = None,
        max_num_edges: int | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        allow_skip_data: bool = False,
    ):
        super().__init__()
        check_limits(max_num_graphs, max_num_nodes, max_num_edges)
        sizes = data_source if isinstance(data_source, GraphSizes) else sizes_of(data_source)
        n_most = int(sizes.nodes.max(initial=1)), int(sizes.edges.max(initial=1))
        self.max_num_graphs = max_num_graphs
        self.max_num_nodes = n_most[0] * max_num_graphs if max_num_nodes is None else max_num_nodes
        self.max_num_edges = n_most[1] * max_num_graphs if max_num_edges is None else max_num_edges
        self.shuffle = shuffle
        self.seed = torch.initial_seed() % 2**32 if seed is None else seed
        self.epoch = 0
        self._sizes = sizes
        self._plan = plan_packs(sizes, max_num_graphs, self.max_num_nodes, self.max_num_edges)
        # NumPy orders numbers of 16 bits by counting.
        n_classes = int(self._plan.class_of_graph.max(initial=-1)) + 1
        narrow = np.int16 if n_classes <= np.iinfo(np.int16).max else np.int64
        self._class_of_graph = self._plan.class_of_graph.astype(narrow)
        self._slots_by_class = np.argsort(self._plan.slot_class, kind="stable")
        self._refuse_large(allow_skip_data)

    def _refuse_large(self, allow_skip_data: bool) -> None:
        large = np.flatnonzero(self._plan.class_of_graph < 0)
        if len(large) and not allow_skip_data:
            i = large[0]
            raise RuntimeError(
                f"The maximum number of graphs, nodes or edges is too small for the single sample "
                f"{i} with {self._sizes.nodes[i]} nodes and {self._sizes.edges[i]} edges, and "
                f"{len(large) - 1} others: a batch has at most {self.max_num_graphs} graphs, "
                f"{self.max_num_nodes} nodes and {self.max_num_edges} edges. Raise the limits, or "
                "leave such samples out with `allow_skip_data`."
            )

    @property
    def efficiency(self) -> float:
        """The share of node slots that real nodes take."""
        n_nodes = self._sizes.nodes[self._plan.class_of_graph >= 0].sum()
        return float(n_nodes) / max(len(self._plan) * self.max_num_nodes, 1)

    def __len__(self) -> int:
        return len(self._plan)

    def packs(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The graphs of an epoch, and where each pack begins among them."""
        plan = self._plan
        graphs = np.flatnonzero(plan.class_of_graph >= 0)
        n_packs = len(plan)
        if not self.shuffle:
            return self._dealt(graphs), plan.pack_start
        random = np.random.default_rng((self.seed, epoch))
        dealt = self._dealt(random.permutation(graphs))
        order = random.permutation(n_packs)
        sizes = np.diff(plan.pack_start)[order]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        slots = np.arange(len(dealt)) + np.repeat(plan.pack_start[order] - starts[:-1], sizes)
        return dealt[slots], starts

    def _dealt(self, graphs: np.ndarray) -> np.ndarray:
        """A graph for each slot: the next one of the slot's class, in the order of the data set."""
        result = np.empty_like(graphs)
        by_class = graphs[np.argsort(self._class_of_graph[graphs], kind="stable")]
        result[self._slots_by_class] = by_class
        return result

    def __iter__(self) -> Iterator[list[int]]:
        """Packs, each a list of indices; the next epoch's order is another one."""
        graphs, starts = self.packs(self.epoch)
        self.epoch += 1
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            yield graphs[begin:end].tolist()
