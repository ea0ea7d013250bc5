"""Layers that find neighbours in feature space: PyG calls `pyg_lib` there, these call `knn`.

`knn` is looked up when they run: while a model is recorded, it has static shapes, and -1 where a
graph has fewer than k nodes.
"""

from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor

from tremula.frontends.geometric.ops.missing import MISSING, marked, may_miss

Layer = Any  # the layer of PyG whose forward it replaces
Pair = tuple[Tensor, Tensor]


def _pairs(
    x: Tensor | Pair, batch: Tensor | Pair | None
) -> tuple[Pair, tuple[Tensor | None, Tensor | None]]:
    features = (x, x) if isinstance(x, Tensor) else x
    return features, (batch, batch) if batch is None or isinstance(batch, Tensor) else batch


def _edges_to(features: Pair, k: int, batches: tuple[Tensor | None, Tensor | None]) -> Tensor:
    """Edges from the k nearest rows of the first features to each row of the second."""
    pairs = pyg.knn(*features, k, *batches)
    return marked(pairs.flip(0)) if may_miss(pairs) else pairs.flip(0)


def dynamic_edge_forward(
    layer: Layer, x: Tensor | Pair, batch: Tensor | Pair | None = None
) -> Tensor:
    """DynamicEdgeConv: messages from the k nearest rows."""
    features, batches = _pairs(x, batch)
    return layer.propagate(_edges_to(features, layer.k, batches), x=features)


def gravnet_forward(layer: Layer, x: Tensor | Pair, batch: Tensor | Pair | None = None) -> Tensor:
    """GravNetConv: messages from the k nearest rows in a learnt space, weighted by distance."""
    features, batches = _pairs(x, batch)
    hidden = layer.lin_h(features[0])
    left = layer.lin_s(features[0])
    right = left if isinstance(x, Tensor) else layer.lin_s(features[1])
    edges = _edges_to((left, right), layer.k, batches)
    ends = edges.clamp(min=0)
    square = (left[ends[0]] - right[ends[1]]).pow(2).sum(-1)
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
    near = _points_near(pos, n_near * layer.dilation, batch)[:, :: layer.dilation].reshape(-1)
    offset = pos[near] - pos.repeat_interleave(n_near, 0)
    lifted = layer.mlp1(offset)
    if x is not None:
        x = x.unsqueeze(-1) if x.dim() == 1 else x
        lifted = torch.cat([lifted, x[near].view(n_points, n_near, layer.in_channels)], -1)
    transform = layer.mlp2(offset.view(n_points, n_near * n_axes))
    return layer.conv(torch.matmul(lifted.transpose(1, 2).contiguous(), transform))


def _points_near(pos: Tensor, k: int, batch: Tensor | None) -> Tensor:
    """The k points nearest to each, [len(pos), k], the point itself first.

    PyG fails where a graph has fewer than k points. With static shapes, which padding graphs need,
    such a graph's points are taken again from the nearest on, as PointCNN draws them repeatedly.
    """
    pairs = pyg.knn(pos, pos, k, batch, batch)
    n_points = pos.size(0)
    is_short = pairs.size(1) != n_points * k and not may_miss(pairs)
    if (n_points < k and batch is None) or is_short:
        raise ValueError(
            f"XConv needs {k} points (kernel_size times dilation) in each graph; there are "
            f"{n_points} in all, with {pairs.size(1)} neighbours. Leave out smaller graphs."
        )
    near = pairs[1].view(n_points, -1)
    if not may_miss(pairs):
        return near
    n_found = (near != MISSING).sum(1, keepdim=True)
    return near.gather(1, torch.arange(k, device=pos.device) % n_found)
