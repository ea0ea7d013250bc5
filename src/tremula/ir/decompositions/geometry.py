"""Our own spellings of distances between points, and of gradients of repeated borders."""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from tremula.ir.decompositions.table import decomposes, gradients_by_autograd

aten = torch.ops.aten


@decomposes(aten._cdist_forward.default)
def cdist(a: Tensor, b: Tensor, p: float, _mode: int | None) -> Tensor:
    """Distances of all points of `a` to all of `b`, from their differences."""
    size = (a.unsqueeze(-2) - b.unsqueeze(-3)).abs()
    if p == 0:
        return (size != 0).sum(-1).to(a.dtype)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return size.square().sum(-1).sqrt()
    return size.amax(-1) if p == math.inf else (size**p).sum(-1) ** (1 / p)


@decomposes(aten._cdist_backward.default)
def cdist_backward(gradient: Tensor, a: Tensor, b: Tensor, p: float, distance: Tensor) -> Tensor:
    """The gradient of `a`; points that coincide have none."""
    difference = a.unsqueeze(-2) - b.unsqueeze(-3)
    gradient, distance = gradient.unsqueeze(-1), distance.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(a)
    if p == 1:
        return (gradient * difference.sign()).sum(-2)
    if p == math.inf:
        is_largest = difference.abs() == distance
        return (gradient * difference.sign() * is_largest).sum(-2)
    ratio = difference if p == 2 else difference.sign() * difference.abs() ** (p - 1)
    slope = ratio / (distance if p == 2 else distance ** (p - 1))
    return (gradient * torch.where(distance == 0, 0, slope)).sum(-2)


@decomposes(aten._pdist_forward.default)
def pdist(x: Tensor, p: float = 2) -> Tensor:
    """Distances of all pairs of points, from their differences."""
    first, second = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return torch.linalg.vector_norm(x[first] - x[second], p, 1)


@decomposes(aten._pdist_backward.default)
def pdist_backward(gradient: Tensor, x: Tensor, p: float, _distance: Tensor) -> Tensor:
    return gradients_by_autograd(lambda x: pdist(x, p), gradient, x)[0]


@decomposes(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_backward(gradient: Tensor, x: Tensor, padding: list[int]) -> Tensor:
    """Each border is summed into the edge it repeats, one dimension after the other."""
    for place in range(len(padding) // 2):
        dim = x.dim() - 1 - place
        before, after = padding[2 * place], padding[2 * place + 1]
        gradient = _folded(gradient, dim, x.shape[dim], before, after)
    return gradient


def _folded(gradient: Tensor, dim: int, n: int, before: int, after: int) -> Tensor:
    start, end = max(before, 0), gradient.shape[dim] - max(after, 0)
    inner = gradient.narrow(dim, start, end - start)
    widths = [0, 0] * (gradient.dim() - 1 - dim)
    inner = pad(inner, [*widths, max(-before, 0), max(-after, 0)])
    for width, first, room in ((before, 0, (0, n - 1)), (after, end, (n - 1, 0))):
        if width > 0:
            edge = gradient.narrow(dim, first, width).sum(dim, keepdim=True)
            inner = inner + pad(edge, [*widths, *room])
    return inner
