"""Neighbour sampling: some of the neighbours of some nodes, hop by hop, with and without types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EdgeType = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Incoming:
    """Edges by target: target t has the edges start[t] to start[t + 1], from `source`."""

    start: Tensor
    source: Tensor


@dataclass(frozen=True, slots=True)
class SampledNeighbours:
    """Nodes of each type, seeds first; edges between places among them; numbers of edges."""

    nodes: dict[str, Tensor]
    rows: dict[EdgeType, Tensor]
    cols: dict[EdgeType, Tensor]
    edges: dict[EdgeType, Tensor]
    n_nodes: dict[str, list[int]]  # new ones of each hop, seeds included
    n_edges: dict[EdgeType, list[int]]


def sample_neighbours(
    graph: Mapping[EdgeType, Incoming],
    seeds: Mapping[str, Tensor],
    n_neighbours: Mapping[EdgeType, Sequence[int]],
    replace: bool = False,
) -> SampledNeighbours:
    """Sample for each hop h up to n_neighbours[type][h] edges into each node that is new (-1: all).

    Nodes are found once, however many edges reach them.
    """
    kinds = {end for kind in graph for end in (kind[0], kind[2])} | set(seeds)
    none = torch.empty(0, dtype=torch.int64)
    nodes = {kind: seeds.get(kind, none) for kind in kinds}
    begin = dict.fromkeys(kinds, 0)
    parts: dict[EdgeType, list[tuple[Tensor, Tensor, Tensor]]] = {kind: [] for kind in graph}
    n_nodes = {kind: [len(result)] for kind, result in nodes.items()}
    n_edges: dict[EdgeType, list[int]] = {kind: [] for kind in graph}
    n_hops = max((len(counts) for counts in n_neighbours.values()), default=0)
    for hop in range(n_hops):
        end = {kind: len(result) for kind, result in nodes.items()}
        for kind, incoming in graph.items():
            counts = n_neighbours[kind]
            count = counts[hop] if hop < len(counts) else 0
            targets = torch.arange(begin[kind[2]], end[kind[2]])
            col, edge = _sampled(incoming, nodes[kind[2]][targets], targets, count, replace)
            nodes[kind[0]], row = _places(nodes[kind[0]], incoming.source[edge])
            parts[kind].append((row, col, edge))
            n_edges[kind].append(len(edge))
        begin = end
        for kind, result in nodes.items():
            n_nodes[kind].append(len(result) - end[kind])
    joined = {
        kind: [torch.cat([part[i] for part in result]) if result else none for i in range(3)]
        for kind, result in parts.items()
    }
    rows, cols, edges = ({kind: three[i] for kind, three in joined.items()} for i in range(3))
    return SampledNeighbours(nodes, rows, cols, edges, n_nodes, n_edges)


def _sampled(
    incoming: Incoming, nodes: Tensor, places: Tensor, count: int, replace: bool
) -> tuple[Tensor, Tensor]:
    """Edges into nodes, at most `count` each, and the places of the nodes they lead to."""
    begin = incoming.start[nodes]
    degree = incoming.start[nodes + 1] - begin
    if replace and count >= 0:
        has_any = degree > 0
        draw = (torch.rand(int(has_any.sum()), count) * degree[has_any, None]).long()
        edge = (begin[has_any, None] + draw).reshape(-1)
        return places[has_any].repeat_interleave(count), edge
    owner = torch.arange(len(nodes)).repeat_interleave(degree)
    offset = torch.arange(len(owner)) - (degree.cumsum(0) - degree)[owner]
    edge = begin[owner] + offset
    if count >= 0 and bool((degree > count).any()):
        # A random order inside each node, of which the first ones stay, in their own order.
        order = torch.argsort(owner + torch.rand(len(owner), dtype=torch.float64) * 0.999)
        keep = order[offset < count].sort().values  # sorting by owner keeps the offsets in place
        owner, edge = owner[keep], edge[keep]
    return places[owner], edge


def _places(nodes: Tensor, neighbours: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes with new neighbours added, in the order they occur, and the place of each neighbour."""
    both = torch.cat([nodes, neighbours])
    unique, inverse = both.unique(return_inverse=True)
    first = torch.full_like(unique, len(both))
    first.scatter_reduce_(0, inverse, torch.arange(len(both)), "amin")
    # A node that was there keeps its place; new ones follow in the order of their first edge.
    place = first.clone()
    new = (first >= len(nodes)).nonzero().flatten()
    new = new[first[new].argsort()]
    place[new] = len(nodes) + torch.arange(len(new))
    return torch.cat([nodes, unique[new]]), place[inverse[len(nodes) :]]
