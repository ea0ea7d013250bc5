"""Neighbours in space with static shapes: knn, radius, knn_graph, radius_graph, knn_interpolate.

All compare every pair of points. A missing neighbour is marked with -1, so that shapes depend on no
value; `loop=False` finds one neighbour more and drops the point itself.
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
    """The k nearest rows of x for each row of y: places in y over places in x, [2, k · len(y)]."""
    distance = _distance(x, y, batch_x, batch_y, cosine)
    return _pairs(*_nearest(distance, k), k)


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
    """Edges from the k nearest neighbours of each row, [2, k · len(x)]."""
    distance = _distance(x, x, batch, batch, cosine)
    if not loop:
        distance = distance.masked_fill(_own_pairs(x), math.inf)
    return _directed(_pairs(*_nearest(distance, k), k), flow)


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
    """Rows of x within r of each row of y, the first `max_num_neighbors` of them."""
    is_near = _distance(x, y, batch_x, batch_y) <= r * r
    return _pairs(*_first(is_near, max_num_neighbors), max_num_neighbors)


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
    """Edges between rows within r of each other, [2, max_num_neighbors · len(x)]."""
    is_near = _distance(x, x, batch, batch) <= r * r
    if not loop:
        is_near = is_near & ~_own_pairs(x)
    return _directed(_pairs(*_first(is_near, max_num_neighbors), max_num_neighbors), flow)


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
        distance = _distance(pos_x, pos_y, batch_x, batch_y)
        places, result = _nearest(distance, k)
        places = places.clamp(min=0)
        offset = pos_x[places] - pos_y.unsqueeze(1)
        weight = 1.0 / (offset * offset).sum(-1).clamp(min=1e-16)
        weight = weight.masked_fill(~result, 0.0).unsqueeze(-1)
    return (x[places] * weight).sum(1) / weight.sum(1).clamp(min=1e-16)


def radius_interactions(
    pos: Tensor, batch: Tensor, cutoff: float, max_num_neighbors: int
) -> tuple[Tensor, Tensor]:
    """Edges within the cutoff and their lengths, [2, n] and [n], for SchNet's continuous filters.

    A missing edge is one from a node to itself that is as long as the cutoff: there, the filter's
    weight is exactly zero.
    """
    edges = radius_graph(pos, cutoff, batch, max_num_neighbors=max_num_neighbors)
    is_missing = edges[0] == MISSING
    sources = torch.where(is_missing, edges[1], edges[0])
    offset = pos[sources] - pos[edges[1]]
    # The root of zero has no slope: what is missing is replaced before the root.
    square = (offset * offset).sum(-1).masked_fill(is_missing, 1.0)
    length = square.sqrt().masked_fill(is_missing, cutoff)
    return torch.stack([sources, edges[1]]), length


# -- pieces ----------------------------------------------------------------------------------------


def _rows(x: Tensor) -> Tensor:
    return x.unsqueeze(1) if x.dim() == 1 else x.flatten(1)


def _distance(
    x: Tensor, y: Tensor, batch_x: Tensor | None, batch_y: Tensor | None, cosine: bool = False
) -> Tensor:
    """Squared distances, or 1 - cosine, [len(y), len(x)]; infinite between examples."""
    x, y = _rows(x.detach()), _rows(y.detach())
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


def _nearest(distance: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Places of the k smallest per row, and whether each exists."""
    n_found = min(k, distance.shape[1])
    value, place = distance.topk(n_found, dim=1, largest=False, sorted=True)
    return _filled(place, value < math.inf, k)


def _first(is_near: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Places of the first k per row that are True, in order."""
    n_points = is_near.shape[1]
    places = torch.arange(n_points, device=is_near.device)
    order = (n_points - places).to(torch.float32).masked_fill(~is_near, 0.0)
    value, place = order.topk(min(k, n_points), dim=1, largest=True, sorted=True)
    return _filled(place, value > 0, k)


def _filled(place: Tensor, found: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """-1 where nothing was found, and in columns that there are no points for."""
    place = place.masked_fill(~found, MISSING)
    n_more = k - place.shape[1]
    if n_more <= 0:
        return place, found
    more = place.new_full((place.shape[0], n_more), MISSING)
    return torch.cat([place, more], 1), torch.cat([found, more >= 0], 1)


def _pairs(place: Tensor, _found: Tensor, k: int) -> Tensor:
    """Rows of y over their neighbours, row by row."""
    rows = torch.arange(place.shape[0], device=place.device)
    return marked(torch.stack([rows.unsqueeze(1).expand(-1, k).reshape(-1), place.reshape(-1)]))


def _directed(edges: Tensor, flow: str) -> Tensor:
    assert flow in ("source_to_target", "target_to_source"), f"flow is {flow!r}"
    return marked(edges.flip(0)) if flow == "source_to_target" else edges
