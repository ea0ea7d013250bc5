"""Clusters of nodes that PyG leaves to `pyg_lib`: voxels of a grid, and greedy matching."""

from collections.abc import Sequence

import torch
from torch import Tensor

Sizes = float | Sequence[float] | Tensor


def voxel_grid(
    pos: Tensor, size: Sizes, batch: Tensor | None = None, start: Sizes | None = None,
    end: Sizes | None = None,
) -> Tensor:  # fmt: skip
    """The number of each point's voxel; voxels of one example come together."""
    pos = pos.unsqueeze(-1) if pos.dim() == 1 else pos
    low = pos.amin(0) if start is None else _each(start, pos)
    high = pos.amax(0) if end is None else _each(end, pos)
    steps = _each(size, pos)
    counts = ((high - low) / steps).to(torch.int64) + 1
    places = ((pos - low) / steps).to(torch.int64)
    result, n_voxels = torch.zeros_like(places[:, 0]), torch.ones_like(counts[0])
    for d in range(pos.shape[1]):
        result = result + places[:, d] * n_voxels
        n_voxels = n_voxels * counts[d]
    return result if batch is None else result + batch.to(torch.int64) * n_voxels


def _each(value: Sizes, pos: Tensor) -> Tensor:
    """A number for each dimension."""
    values = torch.as_tensor(value, dtype=pos.dtype, device=pos.device).reshape(-1)
    return values.expand(pos.shape[1])


def graclus(
    edge_index: Tensor, weight: Tensor | None = None, num_nodes: int | None = None
) -> Tensor:
    """Pairs of neighbours, greedily: the heaviest edge of a node, or one by chance.

    Nodes come in random order. A cluster's number is that of its first node.
    """
    n = int(edge_index.max()) + 1 if num_nodes is None else num_nodes
    order = torch.randperm(edge_index.shape[1])
    if weight is not None:
        order = order[torch.argsort(weight[order], descending=True, stable=True)]
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for row, column in edge_index[:, order].t().tolist():
        if row != column:
            neighbours[row].append(column)
    cluster = [-1] * n
    for node in torch.randperm(n).tolist():
        if cluster[node] >= 0:
            continue
        mate = next((other for other in neighbours[node] if cluster[other] < 0), node)
        cluster[node] = cluster[mate] = min(node, mate)
    return torch.tensor(cluster, dtype=torch.int64, device=edge_index.device)
