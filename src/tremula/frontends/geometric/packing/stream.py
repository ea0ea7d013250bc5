"""StreamPackingSampler: graphs into batches in the order they come, as many as fit."""

from collections.abc import Iterable, Iterator, Sequence, Sized

import numpy as np
from torch.utils.data import RandomSampler, Sampler, SequentialSampler
from torch_geometric.data.data import BaseData

from tremula.frontends.geometric.packing.sizes import sizes_of


class UnknownLength(NotImplementedError, TypeError):
    """The number of batches is not known. Being a TypeError, too, lets `list(loader)` continue."""


class StreamPackingSampler(Sampler[list[int]]):
    """Yields the indices of one batch after the other, without looking ahead.

    A graph joins the batch if nodes, edges and graphs stay within the limits and there is still a
    node and an edge for each graph that could yet come: a padding graph needs one of each.
    A graph that fits into no batch is an error, or left out with `allow_skip_data`.
    """

    def __init__(
        self,
        data_source: Sequence[BaseData],
        max_num_graphs: int,
        max_num_nodes: int | None = None,
        max_num_edges: int | None = None,
        base_sampler: Sampler[int] | Iterable[int] | None = None,
        allow_skip_data: bool = False,
    ):
        super().__init__()
        chosen = SequentialSampler(data_source) if base_sampler is None else base_sampler
        if isinstance(chosen, Sized) and len(chosen) == 0:
            raise ValueError(f"The sampler {chosen} is invalid: its length must be greater than 0.")
        check_limits(max_num_graphs, max_num_nodes, max_num_edges)
        self.data_source = data_source
        self._sizes = sizes_of(data_source)
        self._has_edges = bool(self._sizes.edges.any())
        self.max_num_graphs = max_num_graphs
        self.max_num_nodes = _or_enough(max_num_nodes, self._sizes.nodes, max_num_graphs)
        self.max_num_edges = _or_enough(max_num_edges, self._sizes.edges, max_num_graphs)
        self.base_sampler: Sampler[int] | Iterable[int] = chosen
        self.allow_skip_data = allow_skip_data
        self._length: int | None = None

    def __iter__(self) -> Iterator[list[int]]:
        """Batches, each a list of indices."""
        nodes, edges = self._sizes.nodes, self._sizes.edges
        batch: list[int] = []
        n_nodes = n_edges = 0
        for index in self.base_sampler:
            i = int(index)
            if batch and not self._fits(n_nodes + nodes[i], n_edges + edges[i], len(batch) + 1):
                yield batch
                batch, n_nodes, n_edges = [], 0, 0
            if not self._fits(n_nodes + nodes[i], n_edges + edges[i], len(batch) + 1):
                self._refuse(i)
                continue
            batch.append(i)
            n_nodes, n_edges = n_nodes + nodes[i], n_edges + edges[i]
        if batch:
            yield batch

    def _fits(self, n_nodes: int, n_edges: int, n_graphs: int) -> bool:
        graphs_left = self.max_num_graphs - n_graphs
        room = self.max_num_nodes - n_nodes
        if self._has_edges:
            room = min(room, self.max_num_edges - n_edges)
        return graphs_left >= 0 and room >= graphs_left

    def _refuse(self, index: int) -> None:
        if self.allow_skip_data:
            return
        raise RuntimeError(
            f"The maximum number of graphs, nodes or edges is too small for the single sample "
            f"{index} with {self._sizes.nodes[index]} nodes and {self._sizes.edges[index]} edges: "
            f"a batch has at most {self.max_num_graphs} graphs, {self.max_num_nodes} nodes and "
            f"{self.max_num_edges} edges, and each graph that is not there needs a node and an "
            "edge of padding. Raise the limits, or leave such samples out with `allow_skip_data`. "
            f"The sample is {self.data_source[index]}."
        )

    def __len__(self) -> int:
        """The number of batches, known only after packing them."""
        if isinstance(self.base_sampler, RandomSampler):
            raise UnknownLength(
                f"The length of {type(self).__name__} cannot be determined: its base sampler is a "
                "RandomSampler, and each order of the data gives another number of batches."
            )
        if self._length is None:
            self._length = sum(1 for _ in self)
        return self._length


def _or_enough(limit: int | None, sizes: np.ndarray, n_graphs: int) -> int:
    return int(sizes.max(initial=0)) * n_graphs if limit is None else limit


def check_limits(
    max_num_graphs: int | None, max_num_nodes: int | None, max_num_edges: int | None
) -> None:
    """Raise unless every graph of a pack can have a node and an edge."""
    if max_num_graphs is None:
        raise ValueError(
            "Invalid value for `max_num_graphs`: it must be an integer of at least 1, it is None."
        )
    for name, value, least in (
        ("max_num_graphs", max_num_graphs, 1),
        ("max_num_nodes", max_num_nodes, max_num_graphs),
        ("max_num_edges", max_num_edges, max_num_graphs),
    ):
        if value is not None and value < least:
            raise ValueError(
                f"Invalid value for `{name}`: it should be at least {least}, got {value}."
            )
