"""Lowerings of as_strided and its scatter: views of a tensor's storage, as PyTorch lays it out."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import fx

from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.table import lowers
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.lowering.views import with_copies
from tremula.poplar.tensors.runs import Pieces, compress
from tremula.poplar.tensors.tensor import Tensor


@lowers(*with_copies("as_strided"), calls="Tensor")
def as_strided(
    tiles: Tiles, x: Tensor, size: list[int], stride: list[int], offset: int | None = None
) -> Tensor:
    return _strided(tiles, x, size, stride, offset)


@lowers("as_strided_scatter", calls="Copy")
def as_strided_scatter(
    tiles: Tiles, x: Tensor, source: Tensor, size: list[int], stride: list[int],
    offset: int | None = None,
) -> Tensor:  # fmt: skip
    result = tiles.writeable_copy(x)
    part = _strided(tiles, result, size, stride, offset)
    if part.n_elems:
        tiles.copy(tiles.cast(source, x.type), part)
    return result


def _strided(
    tiles: Tiles, x: Tensor, size: list[int], stride: list[int], offset: int | None
) -> Tensor:
    """The elements at offset + i * stride[0] + … of the storage in which PyTorch would hold x."""
    held: torch.Tensor = cast("fx.Node", tiles.node.args[0]).meta["val"]
    base = int(held.storage_offset())
    first = (base if offset is None else offset) - base
    order = _dense_order(held)
    last = first + sum((int(n) - 1) * int(s) for n, s in zip(size, stride, strict=True))
    if order is None or first < 0 or last >= x.n_elems:
        return _gathered(x, held, size, stride, first)
    flat = x.dim_shuffle(order).flatten()
    step = flat.strides[0]
    strides = tuple(step * int(s) for s in stride)
    shape = tuple(int(n) for n in size)
    return Tensor(x.variables, x.type, flat.offset + step * first, shape, strides, flat.pieces)


def _dense_order(held: torch.Tensor) -> list[int] | None:
    """Dimensions from the outermost in storage to the innermost; None if storage has gaps."""
    order = sorted(range(held.dim()), key=lambda d: (held.stride(d), held.shape[d]), reverse=True)
    expected = 1
    for dim in reversed(order):
        n = int(held.shape[dim])
        if n != 1 and held.stride(dim) != expected:
            return None
        expected *= n
    return order


def _gathered(
    x: Tensor, held: torch.Tensor, size: list[int], stride: list[int], first: int
) -> Tensor:
    """Through a table of where each place of the storage is on the tiles."""
    filled = _places(tuple(held.shape), held.stride())
    wanted = first + _places(tuple(size), stride)
    where = np.full(int(max(filled.max(initial=0), wanted.max(initial=0))) + 1, -1, np.int64)
    where[filled] = x.addresses().ravel()
    if wanted.size and (wanted.min() < 0 or (where[wanted] < 0).any()):
        raise UnsupportedOperations(
            f"as_strided of a tensor of shape {list(held.shape)} reads elements outside it.",
            source=None,
            hint="apply as_strided to the whole tensor, not to a part of it",
        )
    pieces = Pieces(compress(where[wanted]))
    flat = Tensor(x.variables, x.type, 0, (len(wanted),), (1,), pieces)
    return flat.reshape([int(n) for n in size])


def _places(shape: tuple[int, ...], strides: Sequence[int]) -> np.ndarray:
    """int64[n]: the place in storage of every element, in order."""
    places = np.zeros(shape, np.int64)
    for dim, stride in enumerate(strides):
        steps = np.arange(shape[dim]) * int(stride)
        places += steps.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    return places.ravel()
