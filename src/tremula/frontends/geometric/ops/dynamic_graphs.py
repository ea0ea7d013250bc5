"""Layers that find neighbours in feature space: PyG calls `pyg_lib` there, these call `knn`.

`knn` is looked up when they run: while a model is recorded, it has static shapes.
"""

from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor

Layer = Any  # the layer of PyG whose forward it replaces
Pair = tuple[Tensor, Tensor]


def _pairs(
    x: Tensor | Pair, batch: Tensor | Pair | None
) -> tuple[Pair, tuple[Tensor | None, Tensor | None]]:
    features = (x, x) if isinstance(x, Tensor) else x
    return features, (batch, batch) if batch is None or isinstance(batch, Tensor) else batch


def dynamic_edge_forward(
    layer: Layer, x: Tensor | Pair, batch: Tensor | Pair | None = None
) -> Tensor:
    """DynamicEdgeConv: messages from the k nearest rows."""
    features, (batch_x, batch_y) = _pairs(x, batch)
    edges = pyg.knn(features[0], features[1], layer.k, batch_x, batch_y).flip(0)
    return layer.propagate(edges, x=features)


def gravnet_forward(layer: Layer, x: Tensor | Pair, batch: Tensor | Pair | None = None) -> Tensor:
    """GravNetConv: messages from the k nearest rows in a learnt space, weighted by distance."""
    features, (batch_x, batch_y) = _pairs(x, batch)
    hidden = layer.lin_h(features[0])
    left = layer.lin_s(features[0])
    right = left if isinstance(x, Tensor) else layer.lin_s(features[1])
    edges = pyg.knn(left, right, layer.k, batch_x, batch_y).flip(0)
    square = (left[edges[0]] - right[edges[1]]).pow(2).sum(-1)
    out = layer.propagate(
        edges,
        x=(hidden, None),
        edge_weight=torch.exp(-10.0 * square),
        size=(left.size(0), right.size(0)),
    )
    return layer.lin_out1(features[1]) + layer.lin_out2(out)


def x_conv_forward(
    layer: Layer, x: Tensor | None, pos: Tensor, batch: Tensor | None = None
) -> Tensor:
    """XConv: a learnt order of the nearest points, and a convolution over them."""
    pos = pos.unsqueeze(-1) if pos.dim() == 1 else pos
    (n_points, n_axes), n_near = pos.size(), layer.kernel_size
    edges = pyg.knn(pos, pos, n_near * layer.dilation, batch, batch)[:, :: layer.dilation]
    offset = pos[edges[1]] - pos[edges[0]]
    lifted = layer.mlp1(offset)
    if x is not None:
        x = x.unsqueeze(-1) if x.dim() == 1 else x
        lifted = torch.cat([lifted, x[edges[1]].view(n_points, n_near, layer.in_channels)], -1)
    transform = layer.mlp2(offset.view(n_points, n_near * n_axes))
    return layer.conv(torch.matmul(lifted.transpose(1, 2).contiguous(), transform))
