"""Padding by ONNX's rules, which several families share."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.frontends.onnx.context import known


def padded(x: Tensor, pads: list[int], mode: str, value: Tensor | float | None = None) -> Tensor:
    """Padded by [begin of each axis, end of each axis]; negative sizes cut."""
    n_axes = x.dim()
    if mode == "constant":
        flat = [p for axis in reversed(range(n_axes)) for p in (pads[axis], pads[axis + n_axes])]
        if isinstance(value, Tensor) and value.is_floating_point() and value.requires_grad:
            value = value.detach()
        return _constant(x, flat, value)
    for axis in range(n_axes):
        before, after = pads[axis], pads[axis + n_axes]
        if before or after:
            places = _places(x.shape[axis], before, after, mode)
            x = x.index_select(axis, places.to(x.device))
    return x


def _constant(x: Tensor, flat: list[int], value: Tensor | float | None) -> Tensor:
    is_number = not isinstance(value, Tensor)
    if is_number or type(value) is Tensor:  # a real tensor, whose value is known
        number = 0 if value is None else (value if is_number else value.item())
        if x.dtype is torch.bool:
            return F.pad(x.to(torch.uint8), flat, value=int(number)).to(torch.bool)
        return F.pad(x, flat, value=number)
    inside = F.pad(torch.ones_like(x, dtype=torch.float32), flat) > 0
    return torch.where(inside, F.pad(x, flat), value.to(x.dtype))


def _places(size: int, before: int, after: int, mode: str) -> Tensor:
    """Which element each place of a padded axis shows."""
    places = np.arange(-before, size + after)
    if mode == "edge":
        places = places.clip(0, size - 1)
    elif mode == "wrap":
        places = places % size
    elif mode == "reflect":
        period = max(2 * (size - 1), 1)
        places = places % period
        places = np.where(places < size, places, period - places)
    else:
        raise ValueError(f"pads of mode {mode!r}")
    return known(places)
