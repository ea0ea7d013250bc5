"""Layers with a weight per type of edges: edges of other types go to a node that is then dropped.

PyG picks the edges of each type, of which there are as many as values say. Here all edges stay:
those of other types lead to one node more than there are, whatever the aggregation is.
"""

from typing import Any

import torch
from torch import Tensor

Layer = Any  # the layer of PyG whose forward it replaces
Pair = tuple[Tensor | None, Tensor]


def _of_type(edge_index: Tensor, is_own: Tensor, n_targets: int) -> Tensor:
    targets = edge_index[1].masked_fill(~is_own, n_targets)
    return torch.stack([edge_index[0], targets])


def rgcn_forward(
    layer: Layer, x: Tensor | Pair | None, edge_index: Tensor, edge_type: Tensor | None = None
) -> Tensor:
    """RGCNConv: one sum of messages per type, each with its own weight."""
    assert edge_type is not None, "RGCNConv needs edge_type"
    source = x[0] if isinstance(x, tuple) else x
    if source is None:
        source = torch.arange(layer.in_channels_l, device=layer.weight.device)
    own = x[1] if isinstance(x, tuple) else source
    is_real = torch.is_floating_point(own)
    weight = layer.weight
    if layer.num_bases is not None:
        weight = (layer.comp @ weight.view(layer.num_bases, -1)).view(
            layer.num_relations, layer.in_channels_l, layer.out_channels
        )
    n_targets = own.size(0)
    size = (source.size(0), n_targets + 1)
    out = torch.zeros(n_targets, layer.out_channels, device=own.device)
    for kind in range(layer.num_relations):
        edges = _of_type(edge_index, edge_type == kind, n_targets)
        features = source if is_real else weight[kind, source]
        hidden = layer.propagate(edges, x=features, edge_type_ptr=None, size=size)[:-1]
        if layer.num_blocks is not None:
            blocks = hidden.view(-1, weight.size(1), weight.size(2))
            product = torch.einsum("abc,bcd->abd", blocks, weight[kind])
            hidden = product.contiguous().view(-1, layer.out_channels)
        elif is_real:
            hidden = hidden @ weight[kind]
        out = out + hidden
    if layer.root is not None:
        out = out + (own @ layer.root if is_real else layer.root[own])
    return out if layer.bias is None else out + layer.bias


def film_forward(
    layer: Layer, x: Tensor | Pair, edge_index: Tensor, edge_type: Tensor | None = None
) -> Tensor:
    """FiLMConv: messages of each type, changed by what their target says."""
    source, own = (x, x) if isinstance(x, Tensor) else x
    beta, gamma = layer.film_skip(own).split(layer.out_channels, dim=-1)
    out = gamma * layer.lin_skip(own) + beta
    out = out if layer.act is None else layer.act(out)
    n_targets = own.size(0)
    more = own.new_zeros(1, layer.out_channels)
    for kind, (lin, film) in enumerate(zip(layer.lins, layer.films, strict=True)):
        beta, gamma = film(own).split(layer.out_channels, dim=-1)
        edges = edge_index
        if layer.num_relations > 1:
            assert edge_type is not None, "FiLMConv with several relations needs edge_type"
            edges = _of_type(edge_index, edge_type == kind, n_targets)
        hidden = layer.propagate(
            edges,
            x=lin(source),
            beta=torch.cat([beta, more]),
            gamma=torch.cat([gamma, more]),
            size=(own.size(0) if source is None else source.size(0), n_targets + 1),
        )
        out = out + hidden[:-1]
    return out
