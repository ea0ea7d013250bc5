"""Runs: element addresses as (start, count, stride) columns; arithmetic on strides and bytes."""

import math
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from tremula.base.errors import PoplarError
from tremula.poplar.tensors.interval_sweeps import (
    count_pieces,
    cover_runs,
    cut_at_pieces,
    filled,
    join_in_turn,
    look_up_strided,
    mark_runs,
    unroll_runs,
)

Ints = np.ndarray

MOST_RUNS = 1 << 28  # their starts alone take 2 GiB


class Runs(NamedTuple):
    """Element addresses in view order: run i is start[i] + stride[i] * (0 … count[i]-1)."""

    start: Ints
    count: Ints  # pyright: ignore[reportIncompatibleMethodOverride] - a column, not tuple.count
    stride: Ints

    @property
    def n_elems(self) -> int:
        return int(self.count.sum())

    def addresses(self) -> Ints:
        """int64[n_elems]: every element address, in order."""
        if len(self.start) == 1:
            return self.start[0] + self.stride[0] * np.arange(self.count[0])
        address = np.empty(self.n_elems, np.int64)
        unroll_runs(*self, address)
        return address

    def unrolled(self) -> "Runs":
        """Runs of these addresses, one for every repetition of an element."""
        is_repeated = (self.stride == 0) & (self.count > 1)
        if not bool(is_repeated.any()):
            return self
        owner, _ = expand(np.where(is_repeated, self.count, 1))
        return Runs(
            self.start[owner], np.where(is_repeated, 1, self.count)[owner], self.stride[owner]
        )

    def take(self, index: Ints) -> "Runs":
        """The runs at some places; of ones there is one column in memory."""
        count, stride = (
            ones(len(index)) if bool((column == 1).all()) else column[index] for column in self[1:]
        )
        return Runs(self.start[index], count, stride)


_MANY = 1 << 20  # elements: 8 MB
_many: WeakValueDictionary[int, Ints] = WeakValueDictionary()  # of ones, by their number


def ones(n: int) -> Ints:
    """int64[n] for reading: strides of contiguous runs, which are most, take no memory."""
    if n <= _MANY:
        return _some_ones(n.bit_length())[:n]
    n_most = -(-n // _MANY) * _MANY
    column = _many.get(n_most)
    if column is None:
        column = _many[n_most] = _new_ones(n_most)
    return column[:n]


@cache
def _some_ones(n_bits: int) -> Ints:
    return _new_ones(1 << n_bits)


def _new_ones(n: int) -> Ints:
    column = np.ones(n, np.int64)
    column.flags.writeable = False
    return column


def counting(n: int) -> Ints:
    """int64[n] for reading: 0, 1, 2, …, where parts of one each begin. One column has them all."""
    global _count  # noqa: PLW0603 - it grows: what is longer begins with what was there
    if n > len(_count):
        column = np.arange(1 << n.bit_length())
        column.flags.writeable = False
        _count = column
    return _count[:n]


_count = np.arange(0)


def starts_of(counts: Ints) -> Ints:
    """int64[n + 1]: where groups of these sizes begin, one behind the other, and the last ends."""
    if bool((counts == 1).all()):
        return counting(len(counts) + 1)
    return np.concatenate(([0], np.cumsum(counts)))


EMPTY = Runs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def single_run(start: int, count: int, stride: int) -> Runs:
    return Runs(
        np.array([start], np.int64), np.array([count], np.int64), np.array([stride], np.int64)
    )


def concat_runs(parts: list[Runs]) -> Runs:
    if len(parts) == 1:
        return parts[0]
    start, count, stride = zip(*parts, strict=True)
    return Runs(np.concatenate(start), _joined_ones(count), _joined_ones(stride))


def _joined_ones(columns: tuple[Ints, ...]) -> Ints:
    """Columns one behind the other; of ones there is one in memory."""
    if all(bool((column == 1).all()) for column in columns):
        return ones(sum(map(len, columns)))
    return np.concatenate(columns)


def expand(counts: Ints) -> tuple[Ints, Ints]:
    """For each of counts.sum() items: which group it is in, and its place in the group."""
    owner = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts)
    within = np.arange(len(owner)) - np.repeat(ends - counts, counts)
    return owner, within


def merge_dims(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """(shape, strides) of all elements, in order, with as few dimensions as strides allow."""
    sizes: list[int] = []
    steps: list[int] = []
    for size, step in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if sizes and steps[-1] == step * size:
            sizes[-1] *= size
            steps[-1] = step
        else:
            sizes.append(size)
            steps.append(step)
    return sizes, steps


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], new_shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the same elements in another shape, or None if strides cannot express it."""
    if 0 in shape:
        return row_major(new_shape)
    sizes, steps = merge_dims(shape, strides)
    result: list[int] = []
    dim, left = 0, sizes[0] if sizes else 1
    for size in new_shape:
        if size == 1:
            result.append(0)
            continue
        if left % size:
            return None
        left //= size
        result.append(left * steps[dim])
        if left == 1 and dim + 1 < len(sizes):
            dim += 1
            left = sizes[dim]
    return tuple(result)


def strided_runs(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Runs:
    """Runs of a strided view, row-major. Their number is the product of the outer dimensions."""
    if 0 in shape:
        return EMPTY
    sizes, steps = merge_dims(shape, strides)
    if not sizes:
        return single_run(offset, 1, 1)
    n_runs = math.prod(sizes[:-1])
    if n_runs > MOST_RUNS:
        raise PoplarError(
            f"a view of shape {list(shape)} consists of {n_runs:,} separate pieces, at most "
            f"{MOST_RUNS:,} are possible.",
            hint="copy the tensor into a variable of a smaller, contiguous form first",
        )
    starts = np.array([offset], np.int64)
    for size, step in zip(sizes[:-1], steps[:-1], strict=True):
        starts = (starts[:, None] + step * np.arange(size, dtype=np.int64)).ravel()
    n = len(starts)
    stride = ones(n) if steps[-1] == 1 else np.full(n, steps[-1], np.int64)
    return Runs(starts, np.full(n, sizes[-1], np.int64), stride)


def joined_runs(runs: Runs) -> Runs:
    """Runs of these addresses, where neighbours of stride 1 are joined."""
    if len(runs.start) < 2:
        return runs
    is_plain = (runs.stride == 1) | (runs.count == 1)
    joins = is_plain[1:] & is_plain[:-1] & (runs.start[1:] == runs.start[:-1] + runs.count[:-1])
    if not bool(joins.any()):
        return runs
    first = np.flatnonzero(np.concatenate(([True], ~joins)))
    count = np.add.reduceat(runs.count, first)
    stride = np.where(count > runs.count[first], 1, runs.stride[first])
    return Runs(runs.start[first], count, stride)


def compress(addresses: Ints) -> Runs:
    """Runs of stride 1 that give `addresses` in order."""
    if not len(addresses):
        return EMPTY
    breaks = np.flatnonzero(np.diff(addresses) != 1) + 1
    first = np.concatenate(([0], breaks))
    count = np.diff(np.concatenate((first, [len(addresses)])))
    return Runs(addresses[first], count, ones(len(first)))


def has_aliases(runs: Runs) -> bool:
    """Whether some element appears twice."""
    if bool(((runs.stride == 0) & (runs.count > 1)).any()):
        return True
    return runs.n_elems > n_different(runs)


_MOST_PLACES = 1 << 16  # of runs of positions whose pieces are remembered: 512 KB


class _Moved(NamedTuple):
    """Pieces that are others, moved: run i by n_elems[slots[i]], or all by one entry."""

    of: "Pieces"
    n_elems: Ints
    slots: int | Ints


class Pieces:
    """A virtual buffer: the concatenation of runs. Views of it are strided in virtual positions."""

    __slots__ = (
        "_moved_from",
        "_n_elems",
        "_runs",
        "_start",
        "_union",
        "alike",
        "layout",
        "repeats",
    )

    def __init__(self, runs: Runs | None):
        self._runs = runs
        self._moved_from: _Moved | None = None  # what its runs are, until something asks for them
        self._n_elems: int | None = None
        self._start: Ints | None = None
        self.layout: Any = None  # its PiecesLayout, see layout.py
        self.repeats: bool | None = None  # whether an element appears twice; None: not known yet
        self.alike: Pieces | None = None  # others in which elements repeat as in these
        self._union: tuple[Ints, Ints] | None = None

    @property
    def runs(self) -> Runs:
        """Element addresses, in order; those of moved pieces are computed on first use."""
        if self._runs is None:
            assert self._moved_from is not None, "pieces have runs, or are others that were moved"
            of, n_elems, slots = self._moved_from
            start, count, stride = of.runs
            self._runs = Runs(start + n_elems[slots], count, stride)
        return self._runs

    @property
    def start(self) -> Ints:
        """int64[n_runs + 1]: the position of each run; computed once, on first use."""
        if self._start is None:
            if self._moved_from is not None:
                self._start = self._moved_from.of.start
            else:
                self._start = np.zeros(len(self.runs.count) + 1, np.int64)
                np.cumsum(self.runs.count, out=self._start[1:])
        return self._start

    @property
    def n_elems(self) -> int:
        if self._n_elems is None:
            moved = self._moved_from
            self._n_elems = self.runs.n_elems if moved is None else moved.of.n_elems
        return self._n_elems

    def moved(self, n_elems: Ints, slots: int | Ints) -> "Pieces":
        """Pieces of the same counts elsewhere: run i by n_elems[slots[i]], or all by one entry."""
        new = Pieces(None)
        new._moved_from = _Moved(self, n_elems, slots)
        return new

    def repeats_elements(self) -> bool:
        """Whether an element appears twice; found once for all pieces that are alike."""
        if self.repeats is None:
            if self.alike is not None:
                self.repeats = self.alike.repeats_elements()
            else:
                self.repeats = has_aliases(self.runs)
        return self.repeats

    def union(self) -> tuple[Ints, Ints]:
        """Element intervals [begin, end) that all pieces cover, sorted; found once."""
        if self._union is None:
            lowest, n_places = _reach(self.runs)
            if self.repeats is False and n_places == self.n_elems > 0:  # nothing is left out
                self._union = np.array([lowest]), np.array([lowest + n_places])
            else:
                self._union = union_of_runs(self.runs)
        return self._union

    def lookup(self, virtual: Runs) -> Runs:
        """Element addresses of runs of virtual positions."""
        is_one = len(virtual.start) == 1 and virtual.stride[0] == 1 and virtual.start[0] == 0
        if is_one and virtual.count[0] == self.n_elems:
            return self.runs  # all of it, as most views ask for
        if len(virtual.start) and bool((virtual.stride == 1).all() | (virtual.count == 1).all()):
            return self.lookup_intervals(virtual.start, virtual.start + virtual.count)[0]
        return self._lookup_strided(virtual)

    def _lookup_strided(self, virtual: Runs) -> Runs:
        """Look up addresses one element at a time, where runs have strides."""
        n_most = virtual.n_elems
        begin, length = np.empty(n_most, np.int64), np.empty(n_most, np.int64)
        at_place = np.zeros(min(int(virtual.count.max(initial=0)), _MOST_PLACES), np.int64)
        pieces = self.start, self.runs.start, self.runs.stride
        (n,) = look_up_strided(*pieces, *virtual, at_place, begin, length)
        if n == n_most:
            return Runs(begin, ones(n), ones(n))
        return Runs(begin[:n].copy(), length[:n].copy(), ones(n))

    def lookup_intervals(self, begin: Ints, end: Ints) -> tuple[Runs, Ints]:
        """Runs of position intervals [begin, end), and which interval each run belongs to."""
        first = np.empty(len(begin), np.int64)
        (n_parts,) = count_pieces(self.start, begin, end, first)
        start, count, stride, owner = (np.empty(n_parts, np.int64) for _ in range(4))
        cut_at_pieces(
            self.start, self.runs.start, self.runs.stride, begin, end, first,
            start, count, stride, owner,
        )  # fmt: skip
        is_plain = bool((stride == 1).all())
        return Runs(start, count, ones(n_parts) if is_plain else stride), owner


def joined_intervals(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The union of intervals, sorted; those that touch become one."""
    joined = np.empty((2, len(begin)), np.int64)
    n, ascend = join_in_turn(begin, end, joined)
    if not ascend:
        n, _ = join_in_turn(*sorted_ends(*joined[:, :n]), joined)
    low, high = joined if n == len(begin) else joined[:, :n].copy()
    return low, high


def sorted_ends(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Begins and ends of intervals that are not empty, each sorted by itself.

    They are intervals of the same union: where as many have ended as have begun, a new one starts.
    Most come as a few ascending series, which a stable sort merges.
    """
    return np.sort(begin, kind="stable"), np.sort(end, kind="stable")


def union_of_runs(runs: Runs) -> tuple[Ints, Ints]:
    """Element intervals [begin, end) that runs cover, sorted; those that touch become one."""
    runs = _filled_runs(runs)
    marks = _marks_of(runs)
    if marks is None:
        begin, end, _ = byte_intervals(runs, 1)
        return joined_intervals(begin, end)
    edges = np.flatnonzero(marks.is_marked[1:] != marks.is_marked[:-1]) + (marks.first + 1)
    return edges[::2].copy(), edges[1::2].copy()


def n_different(runs: Runs) -> int:
    """How many different elements runs have."""
    marks = _marks_of(_filled_runs(runs))
    if marks is not None:
        return marks.n_marked
    begin, end = union_of_runs(runs)
    return int((end - begin).sum())


def _filled_runs(runs: Runs) -> Runs:
    """Runs without the empty ones."""
    return runs if bool(runs.count.all()) else runs.take(np.flatnonzero(runs.count))


class _Marks(NamedTuple):
    """The elements of runs, marked; place 0, and the last, are of no element."""

    first: int  # the address of place 0
    is_marked: Ints
    n_marked: int


# Sorting an interval takes about as long as marking this many elements.
_ELEMENTS_PER_INTERVAL = 48


def _reach(runs: Runs) -> tuple[int, int]:
    """The lowest element of runs that are not empty, and how many lie from there to the highest."""
    if not len(runs.start):
        return 0, 0
    start, count, stride = runs
    last = start + stride * (count - 1)
    lowest = int(min(start.min(), last.min()))
    return lowest, int(max(start.max(), last.max())) - lowest + 1


def _marks_of(runs: Runs) -> _Marks | None:
    """None if elements are so far from each other, or runs so long, that to sort them is faster."""
    if len(runs.start) < 2:
        return None
    lowest, n_places = _reach(runs)
    count, stride = runs.count, runs.stride
    n_intervals = int(np.where(np.abs(stride) > 1, count, 1).sum())
    if max(n_places, runs.n_elems) > _ELEMENTS_PER_INTERVAL * n_intervals:
        return None
    is_marked = np.zeros(n_places + 2, bool)
    (n_marked,) = mark_runs(*runs, lowest - 1, is_marked)
    return _Marks(lowest - 1, is_marked, n_marked)


def byte_intervals(runs: Runs, n_bytes: int) -> tuple[Ints, Ints, Ints]:
    """Byte intervals [begin, end) that runs cover, and the run each comes from.

    Contiguous runs give one interval; others one per element (one in all for stride 0).
    """
    begin, end, owner = filled(cover_runs, 3, len(runs.start), *runs, n_bytes)
    return begin, end, owner
