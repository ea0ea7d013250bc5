"""Decompositions of distances between points, gradients of repeated borders, reading of images."""

import math
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.nn.functional import pad

from tremula.ir.decompositions.autograd import gradients_by_autograd
from tremula.ir.op_table import decomposes

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
    if len(x) < 2 or not x.shape[1] or p == 0:
        return torch.zeros_like(x)
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


# -- reading images between their elements, and its gradients --------------------------------------


_LINEAR, _NEAREST = 0, 1  # as ATen numbers interpolations
_ZEROS, _BORDER = 0, 1  # and what is beyond the border; 2 is a reflection
Gradients = tuple[Tensor | None, Tensor | None]


@decomposes(aten.grid_sampler_2d_backward.default)
def grid_sampler_2d_backward(
    gradient: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool,
    wanted: list[bool],
) -> Gradients:  # fmt: skip
    sample = get_decompositions([aten.grid_sampler_2d])[aten.grid_sampler_2d.default]
    return _gradients(sample, gradient, x, grid, wanted, mode, padding, align)


@decomposes(aten.grid_sampler_3d.default)
def grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    """[batch, channels, d, h, w] read at a grid [batch, …, 3], whose last dimension is w, h, d."""
    places = [
        _inside(_unscaled(grid[..., 2 - d], size, align), size, padding, align)
        for d, size in enumerate(x.shape[2:])
    ]
    if mode == _NEAREST:
        return _read(x, [place.round() for place in places])
    lows = [place.floor() for place in places]
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for corner in product((0, 1), repeat=3):
        at = [low + step for low, step in zip(lows, corner, strict=True)]
        shares = [1 - (place - a).abs() for place, a in zip(places, at, strict=True)]
        share = shares[0] * shares[1] * shares[2]
        total = total + _read(x, at) * share.unsqueeze(1)
    return total


@decomposes(aten.grid_sampler_3d_backward.default)
def grid_sampler_3d_backward(
    gradient: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool,
    wanted: list[bool],
) -> Gradients:  # fmt: skip
    return _gradients(grid_sampler_3d, gradient, x, grid, wanted, mode, padding, align)


def _gradients(
    sample: Callable[..., Tensor],
    gradient: Tensor,
    x: Tensor,
    grid: Tensor,
    wanted: list[bool],
    *how: object,
) -> Gradients:
    function = lambda x, grid: sample(x, grid, *how)  # noqa: E731
    if how[0] == _NEAREST:  # no gradient flows to the places
        of_x = gradients_by_autograd(partial(function, grid=grid), gradient, x)[0]
        return of_x, torch.zeros_like(grid) if wanted[1] else None
    of_x, of_grid = gradients_by_autograd(function, gradient, x, grid)
    return (of_x if wanted[0] else None), (of_grid if wanted[1] else None)


def _unscaled(place: Tensor, size: int, align: bool) -> Tensor:
    """From -1 … 1 to elements."""
    return (place + 1) * ((size - 1) / 2) if align else ((place + 1) * size - 1) / 2


def _inside(place: Tensor, size: int, padding: int, align: bool) -> Tensor:
    if padding == _ZEROS:
        return place
    if padding != _BORDER:  # folded at the two ends until it is between them
        low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
        off = (place - low).abs() % (2 * span) if span else place * 0
        place = low + torch.where(off > span, 2 * span - off, off)
    return place.clamp(0, size - 1)


def _read(x: Tensor, places: list[Tensor]) -> Tensor:
    """X [batch, channels, …] at whole places; zero where they are outside."""
    is_inside = torch.ones_like(places[0], dtype=torch.bool)
    flat: Tensor | int = 0
    for place, size in zip(places, x.shape[2:], strict=True):
        is_inside = is_inside & (place >= 0) & (place < size)
        flat = flat * size + place.clamp(0, size - 1).to(torch.int64)
    assert isinstance(flat, Tensor)
    rows = flat.reshape(len(x), 1, -1).expand(-1, x.shape[1], -1)
    values = x.flatten(2).gather(2, rows).reshape(*x.shape[:2], *places[0].shape[1:])
    return values * is_inside.unsqueeze(1)
