"""Blocked variables: a tensor cut along each dimension, every block contiguous in memory.

Blocks follow each other in the order of the dimensions, and so do the elements of a block. A tile's
share of an operand is then one contiguous piece, and a variable has few tile intervals however many
rows its matrix has.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.layout import layout_of_pieces, variables_met
from tremula.poplar.tensors.runs import Pieces, Runs, expand, ones
from tremula.poplar.tensors.tensor import Tensor, variable_tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplibs.poputil.memo import N_PLANS

Ints = np.ndarray


def even_cuts(n: int, n_parts: int, grain: int = 1) -> tuple[int, ...]:
    """Boundaries of n_parts parts of whole grains, equal but for the last."""
    n_grains = -(-n // grain)
    size = -(-n_grains // n_parts) * grain
    return (*(min(j * size, n) for j in range(n_parts)), n)


@dataclass(frozen=True)
class OperandBlocks:
    """How a tensor is cut: for each dimension the boundaries 0 … n of its parts."""

    cuts: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(c[-1] for c in self.cuts)

    @property
    def n_blocks(self) -> tuple[int, ...]:
        return tuple(len(c) - 1 for c in self.cuts)

    @property
    def n_elems(self) -> int:
        return prod(self.shape)

    def addresses(self, index: list[Ints]) -> Ints:
        """Places of elements in the variable: one broadcastable index array per dimension."""
        shape = self.shape
        total: Ints | int = 0
        before: Ints | int = 1  # elements of a block over the dimensions seen so far
        places, sizes = [], []
        for dim, at in enumerate(index):
            cuts = np.asarray(self.cuts[dim], np.int64)
            block = np.searchsorted(cuts, at, side="right") - 1
            total = total + before * cuts[block] * prod(shape[dim + 1 :])
            size = cuts[block + 1] - cuts[block]
            before = before * size
            places.append(at - cuts[block])
            sizes.append(size)
        after: Ints | int = 1
        for place, size in zip(reversed(places), reversed(sizes), strict=True):
            total = total + place * after
            after = after * size
        return np.asarray(total)

    def starts(self) -> Ints:
        """int64[n_blocks]: where each block starts."""
        axes = [np.asarray(c[:-1], np.int64) for c in self.cuts]
        return self.addresses(list(np.ix_(*axes)))

    def sizes(self) -> Ints:
        """int64[n_blocks]: elements of each block."""
        total = np.ones((), np.int64)
        for part in np.ix_(*(np.diff(c) for c in self.cuts)):
            total = total * part
        return total


@lru_cache(N_PLANS)
def _view_runs(blocks: OperandBlocks, order: tuple[int, ...]) -> Runs:
    """Runs of the tensor's elements with its dimensions in another order; the last stays last."""
    axes = [np.arange(n, dtype=np.int64) for n in blocks.shape[:-1]]
    last = np.asarray(blocks.cuts[-1], np.int64)
    start = blocks.addresses(list(np.ix_(*axes, last[:-1])))
    count = np.broadcast_to(np.diff(last), start.shape)
    return joined_runs(start.transpose(order).ravel(), count.transpose(order).ravel())


def joined_runs(start: Ints, count: Ints) -> Runs:
    """Neighbouring runs of stride 1 as one, empty ones left out."""
    is_filled = count > 0
    start, count = start[is_filled], count[is_filled]
    if not len(start):
        return Runs(start, count, count)
    is_first = np.concatenate(([True], start[1:] != start[:-1] + count[:-1]))
    first = np.flatnonzero(is_first)
    return Runs(start[first], np.add.reduceat(count, first), ones(len(first)))


class Stored(NamedTuple):
    """A blocked variable, and the flat tensor of its elements in memory order."""

    blocks: OperandBlocks
    flat: Tensor


class _Note(NamedTuple):
    """The note kept about a blocked variable: the view that shows its elements in order."""

    blocks: OperandBlocks
    view: tuple[object, ...]


def _relative(tensor: Tensor) -> tuple[object, ...]:
    """A view without its address and its dimensions of size 1."""
    dims = [d for d, n in enumerate(tensor.shape) if n != 1]
    shape, strides = ([part[d] for d in dims] for part in (tensor.shape, tensor.strides))
    variables, n_bytes, offset = tensor.variables, tensor.type.n_bytes, tensor.offset
    if tensor.pieces is None:
        offset -= variables.base_bytes[variables.id_at(offset * n_bytes)] // n_bytes
        return (tensor.type.name, offset, *shape, *strides)
    digest = layout_of_pieces(tensor.pieces, n_bytes, variables).digest
    return (tensor.type.name, digest, offset, *shape, *strides)


def remember(tensor: Tensor, stored: Stored) -> None:
    """Note that a tensor's elements, in the order of its dimensions, are a blocked variable."""
    (variable,) = variables_met(stored.flat)
    tensor.variables.notes[variable] = _Note(stored.blocks, _relative(tensor))


def recall(tensor: Tensor) -> Stored | None:
    """The blocked variable a tensor is known to be."""
    first, *others = variables_met(tensor) or (-1,)
    note = tensor.variables.notes.get(first)
    if others or not isinstance(note, _Note) or note.view != _relative(tensor):
        return None
    return Stored(note.blocks, variable_tensor(tensor.variables, first))


def add_blocked(
    graph: Graph, element: Type, blocks: OperandBlocks, name: str, metadata: Tensor | None = None
) -> Stored:
    """A new unmapped variable of this form; 8-bit floats have metadata."""
    flat = graph.add_variable(element, [blocks.n_elems], name, metadata=metadata)
    return Stored(blocks, flat)


def view_of(stored: Stored, order: tuple[int, ...] | None = None) -> Tensor:
    """The tensor with its dimensions as `blocks` has them; rows of `order` are long runs."""
    blocks, flat = stored
    shape = blocks.shape
    order = tuple(range(len(shape))) if order is None else order
    runs = _view_runs(blocks, order)
    ordered = tuple(shape[d] for d in order)
    if len(runs.start) == 1:
        view = flat.reshape(ordered)
    else:
        moved = Runs(runs.start + flat.offset, runs.count, runs.stride)
        strides = tuple(prod(ordered[d + 1 :]) for d in range(len(ordered)))
        view = Tensor(flat.variables, flat.type, 0, ordered, strides, Pieces(moved))
    return view.dim_shuffle([order.index(d) for d in range(len(order))])


class Spread(NamedTuple):
    """A tile map of a flat variable as columns."""

    begin: Ints
    end: Ints
    tile: Ints


def spread_over_users(start: Ints, size: Ints, users: Ints, grain: Ints | int) -> Spread:
    """Each block in equal parts of whole grains over its users: `users` is int64[n, n_users].

    The grain is that of all blocks, or int64[n].
    """
    n_grains = -(-size // grain)
    return _parts_of_users(start, size, users, grain, np.zeros_like(n_grains), n_grains, 0)


def spread_together(
    start: Ints, size: Ints, users: Ints, grain: Ints | int, n_least: int
) -> Spread:
    """Blocks that have the same users, side by side, in equal parts of whole grains over them.

    Fewer users have a part if parts of all of them would have less than `n_least` elements.
    """
    n_grains = -(-size // grain)
    _, group = np.unique(users[:, 0], return_inverse=True)  # the first says who the others are
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(n_grains[order])
    totals = np.bincount(group, weights=n_grains).astype(np.int64)
    before = np.empty_like(n_grains)
    before[order] = ends - n_grains[order] - (np.cumsum(totals) - totals)[group[order]]
    return _parts_of_users(start, size, users, grain, before, totals[group], n_least)


def _parts_of_users(
    start: Ints, size: Ints, users: Ints, grain: Ints | int, before: Ints, total: Ints, n_least: int
) -> Spread:
    """PopLibs' `splitRegions`: parts of blocks, of which `before` of `total` grains come first."""
    n_users, grain = users.shape[1], np.broadcast_to(grain, size.shape)
    n_most = np.maximum(total // np.maximum(1, -(-n_least // grain)), 1)
    n_each = np.maximum(-(-total // np.minimum(n_users, n_most)), 1)
    n_parts = np.maximum(-(-total // n_each), 1)[:, None]
    part = np.minimum(np.arange(n_users + 1), n_parts)
    cuts = (part * total[:, None] // n_parts - before[:, None]) * grain[:, None]
    cuts = np.clip(cuts, 0, size[:, None]) + start[:, None]
    begin, end = cuts[:, :-1].ravel(), cuts[:, 1:].ravel()
    is_filled = end > begin
    return Spread(begin[is_filled], end[is_filled], users.ravel()[is_filled])


def map_spread(graph: Graph, flat: Tensor, spread: Spread) -> None:
    graph.set_tile_mapping(flat, TileMapping(*spread, graph.target.n_tiles))


def box_runs(blocks: OperandBlocks, low: list[Ints], high: list[Ints]) -> tuple[Runs, Ints]:
    """Runs of boxes [low, high), one entry per box in each dimension, and the end of each box.

    The last dimension of a box lies in one block. The second result is int64[n_boxes]: elements up
    to the end of each box.
    """
    outer = len(low) - 1
    sizes = [np.maximum(h - a, 0) for a, h in zip(low, high, strict=True)]
    volume = np.ones(len(low[0]), np.int64)
    for size in sizes[:-1]:
        volume = volume * size
    owner, rest = expand(volume)
    index: list[Ints] = [rest] * outer
    for dim in reversed(range(outer)):
        rest, digit = np.divmod(rest, np.maximum(sizes[dim][owner], 1))
        index[dim] = low[dim][owner] + digit
    count = sizes[-1][owner]
    start = blocks.addresses([*index, low[-1][owner]]) if len(owner) else owner
    return _joined_within(start, count, owner), np.cumsum(volume * sizes[-1])


def _joined_within(start: Ints, count: Ints, owner: Ints) -> Runs:
    """Runs joined where they follow each other in one box."""
    is_filled = count > 0
    start, count, owner = start[is_filled], count[is_filled], owner[is_filled]
    if not len(start):
        return Runs(start, count, count)
    breaks = (start[1:] != start[:-1] + count[:-1]) | (owner[1:] != owner[:-1])
    first = np.flatnonzero(np.concatenate(([True], breaks)))
    return Runs(start[first], np.add.reduceat(count, first), ones(len(first)))
