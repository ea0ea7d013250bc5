"""Lowerings of views: rearranged tensors that cost nothing, and the copies that must be made."""

import operator
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import fx

from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.pointwise.map import number
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.runs import Pieces, compress
from tremula.poplar.tensors.tensor import Tensor, concat, concat_rows
from tremula.poplibs import popops
from tremula.poplibs.poputil import broadcast_view, repeats_elements, replayed
from tremula.poplibs.poputil.layout import is_contiguous_along


def with_copies(*names: str) -> list[str]:
    """The views of the given names, and the forms that copy: slice.Tensor, slice_copy.Tensor."""
    copies = [".".join([n.partition(".")[0] + "_copy", *n.split(".")[1:]]) for n in names]
    return [*names, *copies]


@lowers("getitem", calls="")
def getitem(_tiles: Tiles, items: tuple, index: int) -> object:
    return operator.getitem(items, index)


# -- the same elements in another shape ------------------------------------------------------------


@lowers(*with_copies("view"), "_unsafe_view", "reshape", "_reshape_alias", calls="Tensor.reshape")
def view(tiles: Tiles, x: Tensor, *_shape: object) -> Tensor:
    return x.reshape(list(tiles.out_shape))


@lowers(*with_copies("unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims"), calls="Tensor.reshape")
def reshaped(tiles: Tiles, x: Tensor, *_how: object) -> Tensor:
    return x.reshape(list(tiles.out_shape))


@lowers(*with_copies("view.dtype"), calls="Tensor.reinterpret")
def view_as_type(tiles: Tiles, x: Tensor, _dtype: object) -> Tensor:
    """The bits of `x` as another type; both types must be equally wide, on tiles and in PyTorch."""
    return x.reinterpret(tiles.out_type)


@lowers("clone", *with_copies("alias", "detach", "lift_fresh"), calls="")
def same(_tiles: Tiles, x: Tensor, **_options: object) -> Tensor:
    """Values never change, so a copy is the tensor itself."""
    return x


@lowers("copy", calls="popops.cast")
def copy(tiles: Tiles, _old: Tensor, source: Tensor, *_how: object) -> Tensor:
    return broadcast_view(tiles.cast(source, tiles.out_type), tiles.out_shape)


# -- the same elements in another order ------------------------------------------------------------


@lowers(*with_copies("t"), calls="Tensor.dim_shuffle")
def t(_tiles: Tiles, x: Tensor) -> Tensor:
    return x.dim_shuffle(list(reversed(range(x.rank))))


@lowers(*with_copies("permute"), calls="Tensor.dim_shuffle")
def permute(_tiles: Tiles, x: Tensor, dims: list[int]) -> Tensor:
    return x.dim_shuffle([d % x.rank for d in dims])


@lowers(*with_copies("transpose.int"), calls="Tensor.dim_shuffle")
def transpose(_tiles: Tiles, x: Tensor, a: int, b: int) -> Tensor:
    order = list(range(x.rank))
    if x.rank:
        order[a], order[b] = order[b], order[a]
    return x.dim_shuffle(order)


@lowers("flip", calls="Tensor.reverse")
def flip(_tiles: Tiles, x: Tensor, dims: list[int]) -> Tensor:
    for dim in dims if x.rank else ():
        x = x.reverse(dim % x.rank)
    return x


@lowers("roll", calls="concat")
def roll(
    _tiles: Tiles, x: Tensor, shifts: int | list[int], dims: int | Sequence[int] = ()
) -> Tensor:
    shifts, dims = _as_list(shifts), _as_list(dims)
    if not dims:
        return _rolled(x.flatten(), shifts[0], 0).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, dim % x.rank)
    return x


def _rolled(x: Tensor, shift: int, dim: int) -> Tensor:
    n = x.shape[dim]
    if not n or not shift % n:
        return x
    cut = n - shift % n
    return concat([x.slice(cut, n, dim), x.slice(0, cut, dim)], dim)


def _as_list(value: int | Sequence[int]) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


# -- some of the elements --------------------------------------------------------------------------


def _bounds(start: int | None, end: int | None, n: int) -> tuple[int, int]:
    """Python's rules for the ends of a slice."""
    first, last, _ = slice(start, end).indices(n)
    return first, max(first, last)


@lowers(*with_copies("slice.Tensor"), calls="Tensor.slice")
def slice_(
    _tiles: Tiles, x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    dim %= x.rank
    first, last = _bounds(start, end, x.shape[dim])
    part = x.slice(first, last, dim)
    return part if step == 1 else part.sub_sample(step, dim)


@lowers(*with_copies("select.int"), calls="Tensor.index")
def select(_tiles: Tiles, x: Tensor, dim: int, index: int) -> Tensor:
    dim %= x.rank
    return x[(slice(None),) * dim + (index,)]


@lowers(
    *with_copies("split.Tensor", "split_with_sizes"), "unsafe_split.Tensor",
    "unsafe_split_with_sizes", calls="Tensor.slice",
)  # fmt: skip
def split(tiles: Tiles, x: Tensor, _sizes: object, dim: int = 0) -> tuple[Tensor, ...]:
    dim %= x.rank
    sizes = [int(part.shape[dim]) for part in tiles.node.meta["val"]]
    ends = np.cumsum(sizes).tolist()
    return tuple(x.slice(end - n, end, dim) for end, n in zip(ends, sizes, strict=True))


@lowers(*with_copies("unbind.int"), calls="Tensor.index")
def unbind(_tiles: Tiles, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    dim %= x.rank
    return tuple(x[(slice(None),) * dim + (i,)] for i in range(x.shape[dim]))


@lowers(*with_copies("diagonal"), calls="Tensor")
def diagonal(tiles: Tiles, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    dim1, dim2 = dim1 % x.rank, dim2 % x.rank
    start = x.strides[dim2] * offset if offset >= 0 else -x.strides[dim1] * offset
    others = [s for d, s in enumerate(x.strides) if d not in (dim1, dim2)]
    strides = (*others, x.strides[dim1] + x.strides[dim2])
    shape = tiles.out_shape
    offset = x.offset + (start if shape[-1] else 0)
    return Tensor(x.variables, x.type, offset, shape, strides, x.pieces)


@lowers(*with_copies("unfold"), calls="Tensor")
def unfold(tiles: Tiles, x: Tensor, dim: int, _size: int, step: int) -> Tensor:
    """Windows that overlap: the same elements seen again."""
    if not x.rank:
        return x.reshape(list(tiles.out_shape))
    strides = list(x.strides)
    within = strides[dim]
    strides[dim] *= step
    return Tensor(x.variables, x.type, x.offset, tiles.out_shape, (*strides, within), x.pieces)


# -- elements more than once -----------------------------------------------------------------------


@lowers(*with_copies("expand"), calls="poputil.broadcast_view")
def expand(tiles: Tiles, x: Tensor, _shape: object, **_options: object) -> Tensor:
    return broadcast_view(x, tiles.out_shape)


@lowers("repeat", calls="Tensor.broadcast")
def repeat(_tiles: Tiles, x: Tensor, counts: list[int]) -> Tensor:
    x = x.expand([0] * (len(counts) - x.rank))
    for dim, count in enumerate(counts):
        x = x if count == 1 else x.broadcast(count, dim)
    return x


@lowers("repeat_interleave.self_int", calls="Tensor.upsample")
def repeat_interleave(
    _tiles: Tiles, x: Tensor, count: int, dim: int | None = None, **_options: object
) -> Tensor:
    return x.flatten().upsample(count) if dim is None else x.upsample(count, dim % x.rank)


# -- several tensors -------------------------------------------------------------------------------


@lowers("cat", calls="concat")
def cat(tiles: Tiles, tensors: list[Tensor], dim: int = 0) -> Tensor:
    """PyTorch accepts empty vectors, whatever the rank of the others."""
    rank = len(tiles.out_shape)
    dim %= rank
    parts = [tiles.cast(x, tiles.out_type) for x in tensors if x.rank == rank]
    return _joined(tiles.graph, _in_rows(tiles, parts), dim)


@replayed
def _joined(graph: Graph, parts: list[Tensor], dim: int) -> Tensor:  # noqa: ARG001
    """Parts in a row, put together once for all of their layout: they may have many pieces."""
    return concat(parts, dim)


# A part is turned if a tile would else move this many of its elements one by one.
MIN_TURNED_PER_TILE = 64


def _in_rows(tiles: Tiles, parts: list[Tensor]) -> list[Tensor]:
    """Large parts that are column-major, transposed if another is row-major.

    A reader of the whole can then move rows of it, whatever the part.
    """
    least = MIN_TURNED_PER_TILE * tiles.graph.target.n_tiles
    large = [x for x in parts if x.n_elems >= least]
    like = next((x for x in large if is_contiguous_along(x, x.rank - 1)), None)
    if like is None or len(large) < 2:
        return parts
    return [
        _turned(tiles, x, like)
        if x.n_elems >= least and not is_contiguous_along(x, x.rank - 1)
        else x
        for x in parts
    ]


def _turned(tiles: Tiles, x: Tensor, like: Tensor) -> Tensor:
    """A column-major part, row-major as `like`: in whole grains if they fit, else one by one.

    PopLibs regroups whole grains only. Windows of 49 places do not have them, and elements by
    themselves would be as many messages.
    """
    graph, name = tiles.graph, f"{tiles.name}/turned"
    turned = popops.regroup_if_beneficial(graph, x, like, tiles.sequence, name)
    new = popops.innermost_grouping(like)
    dims = [d for d in reversed(range(x.rank - 1)) if is_contiguous_along(x, d)]
    if turned is not x or not dims or new is None or new.dim != x.rank - 1:
        return turned
    if x.shape[new.dim] % new.size:
        return x
    old = popops.Grouping(dims[0], x.shape[dims[0]])
    return popops.regroup_tensor(graph, x, old, new, tiles.sequence, name)


@lowers("stack", calls="concat")
def stack(tiles: Tiles, tensors: list[Tensor], dim: int = 0) -> Tensor:
    dim %= len(tiles.out_shape)
    return concat([tiles.cast(x, tiles.out_type).expand([dim]) for x in tensors], dim)


@lowers("constant_pad_nd", calls="concat")
def constant_pad_nd(tiles: Tiles, x: Tensor, pad: list[int], value: float = 0) -> Tensor:
    """A border that repeats one constant; negative widths remove elements."""
    constant = tiles.constant(number(value, x.type), x.type)
    for place in range(len(pad) // 2):
        dim = x.rank - 1 - place
        before, after = pad[2 * place], pad[2 * place + 1]
        x = x.slice(max(0, -before), x.shape[dim] - max(0, -after), dim)
        sides = [
            broadcast_view(constant, (*x.shape[:dim], max(0, n), *x.shape[dim + 1 :]))
            for n in (before, after)
        ]
        parts = [part for part in (sides[0], x, sides[1]) if part.shape[dim]] or [x]
        x = concat_rows(parts) if place == 0 else concat(parts, dim)
    return x


# -- a tensor with some elements replaced ----------------------------------------------------------


@lowers("slice_scatter", calls="Copy, concat")
def slice_scatter(
    tiles: Tiles, x: Tensor, source: Tensor, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> Tensor:  # fmt: skip
    dim %= x.rank
    first, last = _bounds(start, end, x.shape[dim])
    shape = (*x.shape[:dim], -(-(last - first) // step), *x.shape[dim + 1 :])
    source = broadcast_view(tiles.cast(source, x.type), shape)
    if step == 1 and repeats_elements(x):  # a padded gradient: a view, which takes no memory
        parts = [x.slice(0, first, dim), source, x.slice(last, x.shape[dim], dim)]
        return concat([part for part in parts if part.shape[dim]] or [x], dim)
    result = tiles.writeable_copy(x)
    part = result.slice(first, last, dim)
    return _with_part(tiles, result, part if step == 1 else part.sub_sample(step, dim), source)


def _with_part(tiles: Tiles, whole: Tensor, part: Tensor, source: Tensor) -> Tensor:
    """A new copy of `whole` after `source` was written to a view of it."""
    if part.n_elems:
        tiles.copy(tiles.cast(source, whole.type), part)
    return whole


@lowers("select_scatter", calls="Copy, concat")
def select_scatter(tiles: Tiles, x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    dim %= x.rank
    index %= x.shape[dim]
    return slice_scatter(tiles, x, source.expand([dim]), dim, index, index + 1)


@lowers("diagonal_scatter", calls="Copy")
def diagonal_scatter(
    tiles: Tiles, x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    result = tiles.writeable_copy(x)
    dim1, dim2 = dim1 % x.rank, dim2 % x.rank
    rows = result.dim_shuffle([*(d for d in range(x.rank) if d not in (dim1, dim2)), dim1, dim2])
    n = source.shape[-1]
    below, right = max(0, -offset), max(0, offset)
    square = rows.slice(below, below + n, x.rank - 2).slice(right, right + n, x.rank - 1)
    strides = (*square.strides[:-2], square.strides[-2] + square.strides[-1])
    part = Tensor(x.variables, x.type, square.offset, source.shape, strides, square.pieces)
    return _with_part(tiles, result, part, source)


# -- as_strided and its scatter: views of a tensor's storage, as PyTorch lays it out ---------------


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
    fake: torch.Tensor = cast("fx.Node", tiles.node.args[0]).meta["val"]
    base = int(fake.storage_offset())
    first = (base if offset is None else offset) - base
    order = _dense_order(fake)
    last = first + sum((int(n) - 1) * int(s) for n, s in zip(size, stride, strict=True))
    if order is None or first < 0 or last >= x.n_elems:
        return _gathered(x, fake, size, stride, first)
    flat = x.dim_shuffle(order).flatten()
    step = flat.strides[0]
    strides = tuple(step * int(s) for s in stride)
    shape = tuple(int(n) for n in size)
    return Tensor(x.variables, x.type, flat.offset + step * first, shape, strides, flat.pieces)


def _dense_order(tensor: torch.Tensor) -> list[int] | None:
    """Dimensions from the outermost in storage to the innermost; None if storage has gaps."""
    order = sorted(
        range(tensor.dim()), key=lambda d: (tensor.stride(d), tensor.shape[d]), reverse=True
    )
    expected = 1
    for dim in reversed(order):
        n = int(tensor.shape[dim])
        if n != 1 and tensor.stride(dim) != expected:
            return None
        expected *= n
    return order


def _gathered(
    x: Tensor, tensor: torch.Tensor, size: list[int], stride: list[int], first: int
) -> Tensor:
    """Through a table of where each place of the storage is on the tiles."""
    filled = _places(tuple(tensor.shape), tensor.stride())
    wanted = first + _places(tuple(size), stride)
    where = np.full(int(max(filled.max(initial=0), wanted.max(initial=0))) + 1, -1, np.int64)
    where[filled] = x.addresses().ravel()
    if wanted.size and (wanted.min() < 0 or (where[wanted] < 0).any()):
        raise UnsupportedOperations(
            f"as_strided of a tensor of shape {list(tensor.shape)} reads elements outside it.",
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
