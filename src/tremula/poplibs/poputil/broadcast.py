"""Broadcasting as in NumPy, as views; and the patterns by which a view repeats a vector."""

import math
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tremula.base.source import user_source
from tremula.poplar.tensors.runs import Pieces, Runs, compress, expand, joined_runs, ones
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.registry import PoplibsError

Shape = tuple[int, ...]


def broadcast_shape(shapes: list[Shape]) -> Shape:
    """The shape all the given ones broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise PoplibsError(
            "shapes " + " and ".join(str(list(s)) for s in shapes) + " do not fit together.",
            source=user_source(),
            hint="from the last dimension on, sizes must be equal or 1, as in NumPy",
        ) from None


def can_broadcast_to_match(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have shapes that broadcast to a common one."""
    pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
    return all(m == n or 1 in (m, n) for m, n in pairs)


def expand_to_match_ranks(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both tensors with the larger rank: the smaller gets leading dimensions of size 1."""
    rank = max(a.rank, b.rank)
    return a.expand([0] * (rank - a.rank)), b.expand([0] * (rank - b.rank))


def broadcast_to_match(*tensors: Tensor) -> list[Tensor]:
    """Views of all tensors in the shape they broadcast to."""
    shape = broadcast_shape([t.shape for t in tensors])
    return [broadcast_view(t, shape) for t in tensors]


def broadcast_view(tensor: Tensor, shape: Shape) -> Tensor:
    """The tensor repeated to a shape, as a view with strides of 0."""
    if tensor.shape == shape:
        return tensor
    if broadcast_shape([tensor.shape, shape]) != shape:
        raise PoplibsError(
            f"shape {list(tensor.shape)} cannot be broadcast to {list(shape)}.",
            source=user_source(),
            hint="from the last dimension on, sizes must be equal or 1, as in NumPy",
        )
    n_new = len(shape) - tensor.rank
    old = (1,) * n_new + tensor.shape
    strides = (0,) * n_new + tensor.strides
    strides = tuple(
        0 if n == 1 < wanted else s for n, wanted, s in zip(old, shape, strides, strict=True)
    )
    return Tensor(tensor.variables, tensor.type, tensor.offset, shape, strides, tensor.pieces)


class Points(NamedTuple):
    """Points inside of intervals: which interval each is in, and where."""

    owner: np.ndarray
    at: np.ndarray


# Blocks shorter than this are not worth a piece each: their operand is materialised instead.
MIN_BLOCK_ELEMS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A view that repeats a vector, block by block.

    In a block, `n_tail` elements of the vector appear: each `n_repeats_each` times in a row,
    or, if that is 1, all of them over and over. `lead` says which elements a block has: sizes
    outside a block, and whether the vector stays the same along them.
    """

    view: Tensor
    vector: Tensor  # flat, every element once
    n_tail: int
    n_repeats_each: int
    n_block: int  # elements of a block; 0 if the whole view is one
    lead: tuple[tuple[bool, int], ...]

    @property
    def is_inner(self) -> bool:
        """Whether a row has all elements of the vector's tail, else repeats of one element."""
        return self.n_repeats_each == 1

    @property
    def n_cols(self) -> int:
        """Length of a row: one pass over the n_tail elements, or the repeats of one of them."""
        return self.n_tail if self.is_inner else self.n_repeats_each

    def ends_of_blocks(self, begin: np.ndarray, end: np.ndarray) -> "Points | None":
        """Where blocks end inside of intervals; None if the whole view is one."""
        if not self.n_block:
            return None
        low = begin // self.n_block + 1
        owner, within = expand(np.maximum(0, -(-end // self.n_block) - low))
        return Points(owner, (low[owner] + within) * self.n_block)

    def part(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The interval of the vector for pieces of the view that `cut_rows` made."""
        base = self._first_of_block(begin // self.n_block) if self.n_block else 0
        low = base + begin // self.n_repeats_each % self.n_tail
        if self.is_inner:
            return low, low + np.minimum(end - begin, self.n_tail)
        return low, low + np.maximum(1, (end - begin) // self.n_repeats_each)

    def _first_of_block(self, block: np.ndarray) -> np.ndarray:
        """Where in the vector a block's elements start."""
        place, scale = np.zeros_like(block), self.n_tail
        for is_repeat, size in reversed(self.lead):
            if not is_repeat:
                place = place + block % size * scale
                scale *= size
            block = block // size
        return place


def pattern_of(view: Tensor) -> Pattern | None:
    """How a view repeats a vector; None if it repeats nothing or its blocks are too short."""
    moving = [(n, s == 0) for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
    groups = [
        (is_repeat, math.prod(n for n, _ in part))
        for is_repeat, part in groupby(moving, key=lambda pair: pair[1])
    ]
    if len(groups) < 2:
        return None
    *lead, (is_repeated_whole, n_outer), (_, n_inner) = groups
    n_tail, n_each = (n_inner, 1) if is_repeated_whole else (n_outer, n_inner)
    n_block = n_outer * n_inner if lead else 0
    if 0 < n_block < MIN_BLOCK_ELEMS and len(lead) + is_repeated_whole > 1:
        return None
    index = tuple(slice(0, 1) if s == 0 else slice(None) for s in view.strides)
    return Pattern(view, view[index].flatten(), n_tail, n_each, n_block, tuple(lead))


@dataclass(frozen=True, slots=True, eq=False)
class UnevenPattern:
    """As `Pattern`, of a view in pieces: as many rows to a block as its tile has.

    Row i repeats element i of the vector, or (`block_start`) rows of a block are all alike: block j
    begins at element block_start[j] of the view and has the vector's elements from j * n_cols on.
    """

    view: Tensor
    vector: Tensor
    n_cols: int
    block_start: np.ndarray | None = None

    @property
    def is_inner(self) -> bool:
        """Whether rows are passes over elements of the vector, else repeats of one of them."""
        return self.block_start is not None

    def ends_of_blocks(self, begin: np.ndarray, end: np.ndarray) -> Points | None:
        """Where blocks end inside of intervals."""
        if self.block_start is None:
            return None
        low = np.searchsorted(self.block_start, begin, side="right")
        high = np.searchsorted(self.block_start, end, side="left")
        owner, within = expand(np.maximum(0, high - low))
        return Points(owner, self.block_start[low[owner] + within])

    def part(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The interval of the vector for pieces of the view that `cut_rows` made."""
        if self.block_start is None:
            low = begin // self.n_cols
            return low, low + np.maximum(1, (end - begin) // self.n_cols)
        block = np.searchsorted(self.block_start, begin, side="right") - 1
        low = block * self.n_cols + begin % self.n_cols
        return low, low + np.minimum(end - begin, self.n_cols)


AnyPattern = Pattern | UnevenPattern
LEAST_ROWS_OF_BLOCK = 2  # in the mean: a vector in as many pieces as rows repeats nothing


def pattern_of_pieces(view: Tensor) -> UnevenPattern | None:
    """How a view in pieces repeats a vector in rows of one length; None if it does not.

    PopLibs looks for a pattern in what each tile has (popops/ElementWise.cpp). Layouts of products
    leave the last tiles less than others, so no strides describe them as a whole.
    """
    if view.pieces is None or not view.n_elems:
        return None
    runs = view.runs()
    n_cols = int(runs.count.min())
    if (
        n_cols < 2
        or bool((runs.count % n_cols).any())
        or bool((runs.stride != runs.stride[0]).any())
    ):
        return None
    if runs.stride[0] not in (0, 1):
        return None
    owner, within = expand(runs.count // n_cols)
    first = runs.start[owner] + runs.stride[0] * n_cols * within
    if runs.stride[0] == 0:
        return UnevenPattern(view, _flat_view(view, compress(first)), n_cols)
    is_new = np.concatenate(([True], first[1:] != first[:-1]))
    block = np.flatnonzero(is_new)
    if len(first) < LEAST_ROWS_OF_BLOCK * len(block):
        return None
    n_each = np.full(len(block), n_cols)
    rows = joined_runs(Runs(first[block], n_each, ones(len(block))))
    return UnevenPattern(view, _flat_view(view, rows), n_cols, block * n_cols)


def _flat_view(like: Tensor, runs: Runs) -> Tensor:
    return Tensor(like.variables, like.type, 0, (runs.n_elems,), (1,), Pieces(runs))


def cut_rows(
    begin: np.ndarray, end: np.ndarray, patterns: list[AnyPattern]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut intervals into whole rows and parts of one row: (owner, begin, end), in order.

    All patterns have rows of one length. Whole rows are cut at the ends of blocks.
    """
    if not patterns or not len(begin):
        return np.arange(len(begin)), begin, end
    n_cols = patterns[0].n_cols
    first, last = -(-begin // n_cols) * n_cols, end // n_cols * n_cols
    owners = [np.arange(len(begin))] * 3
    points = [begin, first, last]
    even = {p.n_block: p for p in patterns if isinstance(p, Pattern)}
    for pattern in (*even.values(), *(p for p in patterns if isinstance(p, UnevenPattern))):
        ends = pattern.ends_of_blocks(begin, end)
        if ends is not None:
            owners.append(ends.owner)
            points.append(ends.at)
    owner, point = np.concatenate(owners), np.concatenate(points)
    keep = (point >= begin[owner]) & (point < end[owner])
    order = np.lexsort((point[keep], owner[keep]))
    owner, point = owner[keep][order], point[keep][order]
    is_new = np.concatenate(([True], (owner[1:] != owner[:-1]) | (point[1:] != point[:-1])))
    owner, point = owner[is_new], point[is_new]
    is_last = np.concatenate((owner[1:] != owner[:-1], [True]))
    following = np.concatenate((point[1:], [0]))
    return owner, point, np.where(is_last, end[owner], following)
