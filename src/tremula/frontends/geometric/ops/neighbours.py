"""Neighbours in space with static shapes: knn, radius, knn_graph, radius_graph, knn_interpolate.

All compare every pair of points. Shapes depend on no value: each point has as many columns as it
can have neighbours, nearest first, and a column without a neighbour holds -1 in both rows.
"""

import math

import torch
from torch import Tensor

from tremula.frontends.geometric.ops.missing import MISSING, marked


def knn(
    x: Tensor,
    y: Tensor,
    k: int,
    batch_x: Tensor | None = None,
    batch_y: Tensor | None = None,
    cosine: bool = False,
    num_workers: int = 1,  # noqa: ARG001 — PyG's arguments, here and below
    batch_size: int | None = None,  # noqa: ARG001
) -> Tensor:
    """The k nearest rows of x for each row of y: places in y over places in x.

    [2, min(k, len(x)) · len(y)].
    """
    return _pairs(_nearest(_distance(x, y, batch_x, batch_y, cosine), k))


def knn_graph(
    x: Tensor,
    k: int,
    batch: Tensor | None = None,
    loop: bool = False,
    flow: str = "source_to_target",
    cosine: bool = False,
    num_workers: int = 1,  # noqa: ARG001
    batch_size: int | None = None,  # noqa: ARG001
) -> Tensor:
    """Edges from the k nearest neighbours of each row, [2, min(k, len(x)) · len(x)]."""
    distance = _distance(x, x, batch, batch, cosine)
    if not loop:
        distance = distance.masked_fill(_own_pairs(x), math.inf)
    return _directed(_pairs(_nearest(distance, k)), flow)


def radius(
    x: Tensor,
    y: Tensor,
    r: float,
    batch_x: Tensor | None = None,
    batch_y: Tensor | None = None,
    max_num_neighbors: int = 32,
    num_workers: int = 1,  # noqa: ARG001
    batch_size: int | None = None,  # noqa: ARG001
) -> Tensor:
    """Rows of x within r of each row of y, the nearest `max_num_neighbors` of them.

    [2, min(max_num_neighbors, len(x)) · len(y)].
    """
    return _pairs(_nearest(_within(_distance(x, y, batch_x, batch_y), r), max_num_neighbors))


def radius_graph(
    x: Tensor,
    r: float,
    batch: Tensor | None = None,
    loop: bool = False,
    max_num_neighbors: int = 32,
    flow: str = "source_to_target",
    num_workers: int = 1,  # noqa: ARG001
    batch_size: int | None = None,  # noqa: ARG001
) -> Tensor:
    """Edges between rows within r of each other, [2, min(max_num_neighbors, len(x)) · len(x)]."""
    distance = _within(_distance(x, x, batch, batch), r)
    if not loop:
        distance = distance.masked_fill(_own_pairs(x), math.inf)
    return _directed(_pairs(_nearest(distance, max_num_neighbors)), flow)


def knn_interpolate(
    x: Tensor,
    pos_x: Tensor,
    pos_y: Tensor,
    batch_x: Tensor | None = None,
    batch_y: Tensor | None = None,
    k: int = 3,
    num_workers: int = 1,  # noqa: ARG001
) -> Tensor:
    """Features at pos_y: means of those of the k nearest pos_x, weighted by 1 / distance²."""
    with torch.no_grad():
        places = _nearest(_distance(pos_x, pos_y, batch_x, batch_y), k)
        is_missing = places == MISSING
        places = places.clamp(min=0)
        offset = pos_x[places] - pos_y.unsqueeze(1)
        weight = 1.0 / (offset * offset).sum(-1).clamp(min=1e-16)
        weight = weight.masked_fill(is_missing, 0.0).unsqueeze(-1)
    return (x[places] * weight).sum(1) / weight.sum(1).clamp(min=1e-16)


def radius_interactions(
    pos: Tensor, batch: Tensor, cutoff: float, max_num_neighbors: int
) -> tuple[Tensor, Tensor]:
    """Edges within the cutoff and their lengths, [2, n] and [n], for SchNet's continuous filters.

    A missing edge is one from a node to itself that is as long as the cutoff: there, the filter's
    weight is exactly zero.
    """
    distance = _within(_distance(pos, pos, batch, batch), cutoff)
    places = _nearest(distance.masked_fill(_own_pairs(pos), math.inf), max_num_neighbors)
    targets = _rows_of(places)
    is_missing = places.reshape(-1) == MISSING
    sources = torch.where(is_missing, targets, places.reshape(-1))
    offset = pos[sources] - pos[targets]
    # The root of zero has no slope: what is missing is replaced before the root.
    square = (offset * offset).sum(-1).masked_fill(is_missing, 1.0)
    length = square.sqrt().masked_fill(is_missing, cutoff)
    return torch.stack([sources, targets]), length


# -- pieces ----------------------------------------------------------------------------------------


def _rows(x: Tensor) -> Tensor:
    """Points as rows of floats."""
    x = x.detach() if x.is_floating_point() else x.to(torch.float32)
    return x.unsqueeze(1) if x.dim() == 1 else x.flatten(1)


def _distance(
    x: Tensor, y: Tensor, batch_x: Tensor | None, batch_y: Tensor | None, cosine: bool = False
) -> Tensor:
    """Squared distances, or 1 - cosine, [len(y), len(x)]; infinite between examples."""
    x, y = _rows(x), _rows(y)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"Rows differ in length: x has {x.shape[1]} columns, y {y.shape[1]}.")
    if cosine:
        lengths = y.norm(dim=1).unsqueeze(1) * x.norm(dim=1)
        distance = 1 - (y @ x.t()) / lengths.clamp(min=1e-12)
    else:
        offset = y.unsqueeze(1) - x
        distance = (offset * offset).sum(-1)
    if batch_x is None and batch_y is None:
        return distance
    first = torch.zeros(1, dtype=torch.int64, device=x.device)
    own = first.expand(y.shape[0]) if batch_y is None else batch_y
    other = first.expand(x.shape[0]) if batch_x is None else batch_x
    return distance.masked_fill(own.unsqueeze(1) != other, math.inf)


def _own_pairs(x: Tensor) -> Tensor:
    places = torch.arange(x.shape[0], device=x.device)
    return places.unsqueeze(1) == places


def _within(distance: Tensor, r: float) -> Tensor:
    """Squared distances, infinite beyond the radius."""
    return distance.masked_fill(distance > r * r, math.inf)


def _nearest(distance: Tensor, k: int) -> Tensor:
    """Places of the k smallest of each row that are finite, else -1: [n, min(k, columns)]."""
    value, place = distance.topk(min(k, distance.shape[1]), dim=1, largest=False, sorted=True)
    return place.masked_fill(value == math.inf, MISSING)


def _rows_of(place: Tensor) -> Tensor:
    """The row of each place, as one list."""
    rows = torch.arange(place.shape[0], device=place.device)
    return rows.unsqueeze(1).expand(-1, place.shape[1]).reshape(-1)


def _pairs(place: Tensor) -> Tensor:
    """Rows of y over their neighbours, row by row; -1 in both where there is none."""
    neighbours = place.reshape(-1)
    rows = _rows_of(place).masked_fill(neighbours == MISSING, MISSING)
    return marked(torch.stack([rows, neighbours]))


def _directed(edges: Tensor, flow: str) -> Tensor:
    assert flow in ("source_to_target", "target_to_source"), f"flow is {flow!r}"
    return marked(edges.flip(0)) if flow == "source_to_target" else edges
