"""Decompositions of adaptive and fractional pooling: as many windows as outputs are wanted."""

from math import prod

import torch
from torch import Tensor

from tremula.ir.op_table import decomposes

aten = torch.ops.aten
_EQUAL = {
    2: (aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default),
    3: (aten.max_pool3d_with_indices.default, aten.max_pool3d_with_indices_backward.default),
}


@decomposes(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(x: Tensor, out: list[int]) -> tuple[Tensor, Tensor]:
    """Maxima of windows that cover the field, and their places in it."""
    n = len(out)
    field = x.shape[-n:]
    kernel = _equal_windows(field, out)
    if kernel is not None:
        return _EQUAL[n][0](x, kernel, kernel)
    starts, blocks = [], x
    for size, n_out in zip(field, out, strict=True):
        start, blocks = _windows(blocks, x.dim() - n, size, n_out)
        starts.append(start)
    return _maxima(blocks, starts, list(field), list(out))


def _equal_windows(field: list[int] | torch.Size, out: list[int]) -> list[int] | None:
    if any(size % n for size, n in zip(field, out, strict=True)):
        return None
    return [size // n for size, n in zip(field, out, strict=True)]


def _windows(x: Tensor, dim: int, size: int, n_out: int) -> tuple[list[int], Tensor]:
    """Starts of the windows along `dim`, and x with `dim` replaced by two at the end: [out, width].

    A window that is shorter than the widest one repeats its last element, which changes no maximum.
    """
    starts = [o * size // n_out for o in range(n_out)]
    ends = [-(-(o + 1) * size // n_out) for o in range(n_out)]
    width = max(end - start for start, end in zip(starts, ends, strict=True))
    parts = []
    for start, end in zip(starts, ends, strict=True):
        part = x.narrow(dim, start, end - start)
        last = x.narrow(dim, end - 1, 1)
        parts.append(torch.cat([part, *[last] * (width - (end - start))], dim))
    return starts, torch.stack(parts, -1).movedim(dim, -1)


def _maxima(
    blocks: Tensor, starts: list[list[int]], field: list[int], out: list[int]
) -> tuple[Tensor, Tensor]:
    """Of blocks [batch, channels, out, width, out, width…]: the first maximum of each window."""
    n, first = len(out), blocks.dim() - 2 * len(out)
    widths = blocks.shape[first + 1 :: 2]
    blocks = blocks.permute(
        *range(first), *range(first, blocks.dim(), 2), *range(first + 1, blocks.dim(), 2)
    )
    values, places = blocks.flatten(-n).max(-1)
    # A place in a window becomes one in the field: its row and column there, from the last on.
    total, step = torch.zeros_like(places), 1
    for d in reversed(range(n)):
        shape = [-1 if other == d else 1 for other in range(n)]
        start = torch.tensor(starts[d], device=places.device).reshape(shape)
        total = total + (start + places % widths[d]) * step
        places, step = places // widths[d], step * field[d]
    return values, total


@decomposes(aten.adaptive_max_pool2d_backward.default)
def adaptive_max_pool2d_backward(gradient: Tensor, x: Tensor, places: Tensor) -> Tensor:
    return _to_places(gradient, x, places, 2)


@decomposes(aten.adaptive_max_pool3d_backward.default)
def adaptive_max_pool3d_backward(gradient: Tensor, x: Tensor, places: Tensor) -> Tensor:
    return _to_places(gradient, x, places, 3)


def _to_places(gradient: Tensor, x: Tensor, places: Tensor, n: int) -> Tensor:
    """Each gradient is added where its maximum was."""
    kernel = _equal_windows(x.shape[-n:], list(gradient.shape[-n:]))
    if kernel is not None:
        none, one = [0] * n, [1] * n
        return _EQUAL[n][1](gradient, x, kernel, kernel, none, one, False, places)
    flat = gradient.new_zeros((*x.shape[:-n], prod(x.shape[-n:])))
    flat = flat.scatter_add(-1, places.flatten(-n), gradient.flatten(-n))
    return flat.reshape(x.shape)


# -- windows at places that are drawn --------------------------------------------------------------


@decomposes(aten.fractional_max_pool2d.default, aten.fractional_max_pool3d.default)
def fractional_max_pool(
    x: Tensor, kernel: list[int], out: list[int], draws: Tensor
) -> tuple[Tensor, Tensor]:
    """Windows of one size that begin where `draws` [batch, channels, dimensions] say."""
    n = len(out)
    field, n_first = x.shape[-n:], x.dim() - n
    draws = draws.reshape(*x.shape[:n_first], n) if x.dim() == n + 2 else draws[0]
    order = range(n) if n == 3 else reversed(range(n))  # a plane's draws are for columns first
    places: Tensor | int = 0
    for d, draw in enumerate(order):
        starts = _drawn_starts(draws[..., draw], field[d], kernel[d], out[d])
        own = starts.unsqueeze(-1) + torch.arange(kernel[d], device=x.device)
        shape = [1] * (2 * n)
        shape[d], shape[n + d] = out[d], kernel[d]
        places = places * field[d] + own.reshape(*x.shape[:n_first], *shape)
    assert isinstance(places, Tensor)
    windows = places.flatten(n_first + n)  # [..., out…, elements of a window]
    values = x.flatten(n_first).gather(-1, windows.flatten(n_first)).reshape(windows.shape)
    result, which = values.max(-1)
    return result, windows.gather(-1, which.unsqueeze(-1)).squeeze(-1)


def _drawn_starts(draw: Tensor, size: int, kernel: int, n_out: int) -> Tensor:
    """Where windows begin: at steps of a fraction, rounded down; the last one ends the field."""
    last = torch.full_like(draw, size - kernel, dtype=torch.int64).unsqueeze(-1)
    if n_out == 1:
        return last
    step = (size - kernel) / (n_out - 1)
    places = torch.arange(n_out - 1, dtype=draw.dtype, device=draw.device)
    draw = draw.unsqueeze(-1)
    starts = ((places + draw) * step).to(torch.int64) - (draw * step).to(torch.int64)
    return torch.cat([starts, last], -1)


@decomposes(
    aten.fractional_max_pool2d_backward.default, aten.fractional_max_pool3d_backward.default
)
def fractional_max_pool_backward(
    gradient: Tensor, x: Tensor, _kernel: list[int], out: list[int], places: Tensor
) -> Tensor:
    """Each gradient is added where its maximum was."""
    n = len(out)
    flat = gradient.new_zeros((*x.shape[:-n], prod(x.shape[-n:])))
    return flat.scatter_add(-1, places.flatten(-n), gradient.flatten(-n)).reshape(x.shape)
