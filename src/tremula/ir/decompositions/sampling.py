"""Our own spellings of reading images at places between their elements, and of the gradients."""

from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch._decomp import get_decompositions

from tremula.ir.decompositions.table import decomposes, gradients_by_autograd

aten = torch.ops.aten
_LINEAR, _NEAREST = 0, 1  # as ATen numbers interpolations
_ZEROS, _BORDER = 0, 1  # and what lies beyond the border; 2 is a reflection
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
    if how[0] == _NEAREST:  # nothing of the places reaches the result
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
