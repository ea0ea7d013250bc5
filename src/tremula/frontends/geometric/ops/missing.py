"""Message passing over edges of which some are missing: those send nothing, as in PyG.

With static shapes `knn`, `radius` and their graphs put -1 in both rows for a neighbour that is not
there, where PyG has an edge less. Such edges are marked as a tensor, too, while a model is
recorded. A layer that gets them computes a message for each, from the first row, and adds those
that are missing to a node behind all others, which is then cut off: right for every aggregation.
"""

import sys

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

MISSING = -1

_check_input = MessagePassing._check_input
_index_select = MessagePassing._index_select


def marked(edges: Tensor) -> Tensor:
    """Mark edges of which some neighbours may be missing; returns them."""
    edges.may_miss = True  # pyright: ignore[reportAttributeAccessIssue]
    return edges


def may_miss(edges: object) -> bool:
    """Whether edges are marked."""
    return getattr(edges, "may_miss", False)


def check_input(
    layer: MessagePassing, edge_index: Tensor, size: tuple[int | None, int | None] | None
) -> list[int | None]:
    """Remember which edges of this propagation are missing."""
    missing = None
    if may_miss(edge_index):
        _reject_custom_aggregation(layer)
        missing = edge_index[0] == MISSING
    vars(layer)["_missing_edges"] = missing
    return _check_input(layer, edge_index, size)


def index_select(layer: MessagePassing, src: Tensor, index: Tensor) -> Tensor:
    """Rows of nodes; what is missing gets the first, which then goes nowhere."""
    if vars(layer).get("_missing_edges") is not None:
        index = index.clamp(min=0)
    return _index_select(layer, src, index)


def aggregate(
    layer: MessagePassing,
    inputs: Tensor,
    index: Tensor,
    ptr: Tensor | None = None,
    dim_size: int | None = None,
) -> Tensor:
    """Messages by node; missing ones to a node behind all others."""
    missing = vars(layer).pop("_missing_edges", None)
    if missing is None:
        return layer.aggr_module(inputs, index, ptr=ptr, dim_size=dim_size, dim=layer.node_dim)
    assert dim_size is not None, "the size is known: nodes have features"
    index = torch.where(missing, dim_size, index)
    out = layer.aggr_module(inputs, index, dim_size=dim_size + 1, dim=layer.node_dim)
    return out.narrow(layer.node_dim, 0, dim_size)


def _reject_custom_aggregation(layer: MessagePassing) -> None:
    """Raise for layers that weigh a node's edges against each other, or aggregate otherwise."""
    taken = {
        n for part in ("message", "edge_update") for n in layer.inspector.get_param_names(part)
    }
    has_norm = hasattr(sys.modules[type(layer).__module__], "gcn_norm")
    if (
        taken & {"index", "ptr", "size_i", "dim_size"}
        or (has_norm and getattr(layer, "normalize", True))
        or type(layer).aggregate is not MessagePassing.aggregate
    ):
        raise ValueError(
            f"{type(layer).__name__} weighs a node's edges against each other, but 'edge_index' "
            "comes from knn, radius or their graphs: with static shapes it holds -1 where a node "
            "has fewer neighbours. Find the neighbours in the data set "
            "(torch_geometric.transforms.KNNGraph or RadiusGraph, "
            "poptorch_geometric.columns.with_radius_graph) and give the edges as an input."
        )
