"""Self-loops with static shapes: a loop that is there counts nothing instead of being removed.

That works where edges have weights, as in GCN's normalisation and the Laplacian. Where they have
none, only data can say which loops there are, so that layers ask for `add_self_loops=False`.
Edges that are missing count nothing either.
"""

from typing import NoReturn

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from tremula.frontends.geometric.ops.missing import MISSING, may_miss


def add_remaining_self_loops(
    edge_index: Tensor,
    edge_attr: Tensor | None = None,
    fill_value: float | None = None,
    num_nodes: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Edges and weights with a loop at each node: its own weight if it had one, else `fill_value`.

    All edges stay; loops among them get the weight 0.
    """
    if num_nodes is None:
        raise ValueError("Dynamic shapes disabled. Argument 'num_nodes' needs to be set")
    fill = 1.0 if fill_value is None else float(fill_value)
    edge_index, weight, is_loop, loops = _without_loops(edge_index, edge_attr)
    n_loops = scatter(is_loop.to(weight.dtype), edge_index[1], 0, num_nodes, reduce="sum")
    own = scatter(loops, edge_index[1], 0, num_nodes, reduce="sum")
    if edge_attr is None:
        own = own.clamp(max=1.0)  # without weights, a loop is there or not
    own = torch.where(n_loops > 0, own, own.new_full((), fill))
    nodes = torch.arange(num_nodes, device=edge_index.device)
    joined = torch.cat([edge_index, torch.stack([nodes, nodes])], 1)
    return joined, torch.cat([weight, own])


def remove_self_loops(edge_index: Tensor, edge_attr: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Edges whose loops have the weight 0; for weights that factors are made of."""
    edge_index, weight, _, _ = _without_loops(edge_index, edge_attr)
    return edge_index, weight


def _without_loops(
    edge_index: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    is_loop = edge_index[0] == edge_index[1]
    if weight is None:
        weight = torch.ones(edge_index.shape[1], device=edge_index.device)
    if may_miss(edge_index):
        is_missing = edge_index[0] == MISSING
        weight, is_loop = weight.masked_fill(is_missing, 0), is_loop & ~is_missing
        edge_index = edge_index.clamp(min=0)
    return edge_index, weight.masked_fill(is_loop, 0), is_loop, weight.masked_fill(~is_loop, 0)


def refuse_self_loops(*_args: object, **_kwargs: object) -> NoReturn:
    """For layers whose edges have no weights."""
    raise ValueError(
        "Dynamic shapes disabled. This layer removes self-loops that the data may have, so the "
        "number of edges depends on values: apply torch_geometric.transforms.AddSelfLoops to the "
        "data and make the layer with add_self_loops=False."
    )
