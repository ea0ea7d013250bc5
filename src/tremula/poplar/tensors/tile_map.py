"""Tile maps: which tile holds which bytes. A log of calls, resolved so that the last call wins."""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tremula.poplar.tensors.interval_sweeps import (
    all_in_entries,
    cut_at_entries,
    filled,
    find_entries,
)
from tremula.poplar.tensors.tensor import Interval

# A mapping as lists: entry i has the intervals, over the flattened tensor, that tile i holds.
TileLists = Sequence[Sequence[Interval | tuple[int, int]]]


class ByteTileMap(NamedTuple):
    """Sorted, disjoint byte intervals of the address space and their tiles."""

    begin: np.ndarray
    end: np.ndarray
    tile: np.ndarray

    def split(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, ...]:
        """Cut intervals at tile boundaries: (owner, begin, end, tile), gaps left out."""
        n_expected = len(begin) + len(begin) // 4 + 64  # few are cut
        owner, low, high, tile = filled(
            cut_at_entries, 4, n_expected, *self, begin, end, self.entries_at(begin)
        )
        return owner, low, high, tile

    def entries_at(self, address: np.ndarray) -> np.ndarray:
        """int64[n]: the first entry that ends behind each address, mostly the one that holds it."""
        entry = np.empty(len(address), np.int64)
        find_entries(self.end, address, entry)
        return entry

    def covers(self, begin: np.ndarray, end: np.ndarray) -> bool:
        """Whether all of the given intervals are mapped."""
        entry = self.entries_at(begin)
        return all_in_entries(self.begin, self.end, begin, end, entry) == (1,)

    def first_gap(self, begin: np.ndarray, end: np.ndarray) -> tuple[int, int] | None:
        """The first of the given intervals that is not fully mapped: its unmapped part."""
        owner, low, high, _ = self.split(begin, end)
        covered = np.bincount(owner, weights=high - low, minlength=len(begin))
        missing = np.flatnonzero(covered < end - begin)
        if not len(missing):
            return None
        which = int(missing[0])
        mine = owner == which
        reached = int(begin[which])
        for a, b in zip(low[mine].tolist(), high[mine].tolist(), strict=True):
            if a > reached:
                return reached, a
            reached = b
        return reached, int(end[which])


# Room for new intervals. Pages that nothing was written to take no memory, so there is much of it:
# what has to be copied into larger columns takes new pages.
_TIMES_ROOM = 4
_MANY, _ROOM_OF_MANY = 1 << 16, 1 << 25


class TileMapLog:
    """Appends (begin, end, tile) byte intervals; `resolve` paints them in order."""

    def __init__(self) -> None:
        self._begin, self._end, self._tile = array("q"), array("q"), array("q")
        # Resolved columns, with room to grow: most new intervals lie behind all old ones.
        self._columns = [np.empty(0, np.int64) for _ in range(3)]
        self._resolved = ByteTileMap(*self._columns)
        self.n_rewrites = 0  # how often something old was mapped again
        self._reach = 0  # no interval that was added ends behind this address
        self._is_ahead = True  # those not resolved yet are behind all before them

    @property
    def may_rewrite(self) -> bool:
        """Whether intervals that wait may map bytes again that are mapped."""
        return not self._is_ahead

    def add(self, begin: int, end: int, tile: int) -> None:
        self._is_ahead &= begin >= self._reach
        self._reach = max(self._reach, end)
        self._begin.append(begin)
        self._end.append(end)
        self._tile.append(tile)

    def add_many(self, begin: np.ndarray, end: np.ndarray, tile: np.ndarray) -> None:
        if len(begin):
            self._is_ahead &= int(begin[0] if len(begin) == 1 else begin.min()) >= self._reach
            self._reach = max(self._reach, int(end[0] if len(end) == 1 else end.max()))
        for column, values in ((self._begin, begin), (self._end, end), (self._tile, tile)):
            column.frombytes(np.ascontiguousarray(values, np.int64).tobytes())

    def append(self, part: tuple[np.ndarray, ...], shift: int) -> None:
        """Add a part of a resolved map, moved by `shift` bytes; mostly it is behind all others."""
        if not len(part[0]):
            return
        now, first = self.resolve(), int(part[0][0]) + shift
        if len(now.end) and first <= now.end[-1]:
            self.add_many(part[0] + shift, part[1] + shift, part[2])
            return
        self._resolved = self._appended(now, ByteTileMap(*part), shift)
        self._reach = max(self._reach, int(self._resolved.end[-1]))

    def forget_from(self, begin: int) -> None:
        """Drop the last intervals that begin at an address or behind it."""
        while len(self._begin) and self._begin[-1] >= begin:
            for column in (self._begin, self._end, self._tile):
                column.pop()

    def resolve(self) -> ByteTileMap:
        """The map now. Costs no more than what was added since, unless old bytes were remapped."""
        if len(self._begin):
            log = [
                np.frombuffer(column, np.int64) for column in (self._begin, self._end, self._tile)
            ]
            self._begin, self._end, self._tile = array("q"), array("q"), array("q")
            self._is_ahead = True
            new, old = _merge(*_paint(*log)), self._resolved
            if len(old.begin) and len(new.begin) and new.begin[0] <= old.end[-1]:
                new, old = _painted_over(old, new), ByteTileMap(*(c[:0] for c in old))
                self._columns = list(new)
                self.n_rewrites += 1
            self._resolved = self._appended(old, new)
        return self._resolved

    def _appended(self, old: ByteTileMap, new: ByteTileMap, shift: int = 0) -> ByteTileMap:
        """Old intervals with the new ones, moved, behind; maps given out earlier do not change."""
        n_old, n = len(old.begin), len(old.begin) + len(new.begin)
        if n > len(self._columns[0]):
            n_room = max(_TIMES_ROOM * n, _ROOM_OF_MANY if n > _MANY else 0)
            room = [np.empty(n_room, np.int64) for _ in range(3)]
            for column, values in zip(room, old, strict=True):
                column[:n_old] = values
            self._columns = room
        for column, values, by in zip(self._columns, new, (shift, shift, 0), strict=True):
            np.add(values, by, out=column[n_old:n])
        return ByteTileMap(*(column[:n] for column in self._columns))


def _paint(begin: np.ndarray, end: np.ndarray, tile: np.ndarray) -> tuple[np.ndarray, ...]:
    keep = end > begin
    begin, end, tile = begin[keep], end[keep], tile[keep]
    order = np.argsort(begin, kind="stable")
    if bool((begin[order][1:] >= end[order][:-1]).all()):
        return begin[order], end[order], tile[order]
    cuts = np.sort(np.concatenate((begin, end)))
    cuts = cuts[np.concatenate(([True], cuts[1:] != cuts[:-1]))]  # np.unique hashes: slower
    low, high = np.searchsorted(cuts, begin).tolist(), np.searchsorted(cuts, end).tolist()
    painted = np.full(len(cuts) - 1, -1, np.int64)
    for a, b, t in zip(low, high, tile.tolist(), strict=True):
        painted[a:b] = t
    mapped = painted >= 0
    return cuts[:-1][mapped], cuts[1:][mapped], painted[mapped]


def _painted_over(old: ByteTileMap, new: ByteTileMap) -> ByteTileMap:
    """Both maps as one; where both have bytes, the new one's tiles."""
    # Only what the new one spans, and a neighbour on each side to join, has to be looked at.
    low = max(int(np.searchsorted(old.end, new.begin[0], side="right")) - 1, 0)
    high = int(np.searchsorted(old.begin, new.end[-1], side="left")) + 1
    middle = _painted_over_all(ByteTileMap(*(c[low:high] for c in old)), new)
    parts = zip(old, middle, strict=True)
    return ByteTileMap(*(np.concatenate((c[:low], m, c[high:])) for c, m in parts))


def _painted_over_all(old: ByteTileMap, new: ByteTileMap) -> ByteTileMap:
    limits = np.iinfo(np.int64)
    gap_begin, gap_end = np.append(limits.min, new.end), np.append(new.begin, limits.max)
    gaps = ByteTileMap(gap_begin, gap_end, np.zeros(len(gap_begin), np.int64))
    owner, low, high, _ = gaps.split(old.begin, old.end)
    is_left = high > low  # empty between adjacent neighbours
    owner, low, high = owner[is_left], low[is_left], high[is_left]
    begin, end = np.concatenate((low, new.begin)), np.concatenate((high, new.end))
    tile = np.concatenate((old.tile[owner], new.tile))
    order = np.argsort(begin, kind="stable")
    return _merge(begin[order], end[order], tile[order])


def _merge(begin: np.ndarray, end: np.ndarray, tile: np.ndarray) -> ByteTileMap:
    """Join neighbours on the same tile."""
    if not len(begin):
        return ByteTileMap(begin, end, tile)
    first = np.flatnonzero(
        np.concatenate(([True], (begin[1:] != end[:-1]) | (tile[1:] != tile[:-1])))
    )
    last = np.concatenate((first[1:] - 1, [len(begin) - 1]))
    return ByteTileMap(begin[first], end[last], tile[first])


class TileMapping:
    """The tile map of one tensor: for each tile, intervals over its flattened elements.

    Columns `begin`, `end`, `tile` are in element order; `mapping[tile]` lists Intervals.
    """

    __slots__ = ("begin", "end", "n_tiles", "tile")

    def __init__(self, begin: np.ndarray, end: np.ndarray, tile: np.ndarray, n_tiles: int):
        self.begin, self.end, self.tile, self.n_tiles = begin, end, tile, n_tiles

    def __len__(self) -> int:
        return self.n_tiles

    def __getitem__(self, tile: int) -> list[Interval]:
        mine = self.tile == tile
        return [
            Interval(a, b)
            for a, b in zip(self.begin[mine].tolist(), self.end[mine].tolist(), strict=True)
        ]

    def __iter__(self) -> Iterator[list[Interval]]:
        return (self[tile] for tile in range(self.n_tiles))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TileMapping):
            return NotImplemented
        mine = (self.begin, self.end, self.tile)
        theirs = (other.begin, other.end, other.tile)
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType] - its columns can change

    def __repr__(self) -> str:
        return f"TileMapping({self.n_elems} elements on {len(np.unique(self.tile))} tiles)"

    @property
    def n_elems(self) -> int:
        """Elements that are mapped."""
        return int((self.end - self.begin).sum())

    def n_elems_per_tile(self) -> np.ndarray:
        """int64[n_tiles]: how many elements each tile holds."""
        sizes = self.end - self.begin
        return np.bincount(self.tile, weights=sizes, minlength=self.n_tiles).astype(np.int64)

    @staticmethod
    def from_lists(mapping: TileLists, n_tiles: int) -> "TileMapping":
        """From a list (index: tile) of lists of Intervals or (begin, end) pairs."""
        rows = [
            (part.begin, part.end, tile) if isinstance(part, Interval) else (part[0], part[1], tile)
            for tile, parts in enumerate(mapping)
            for part in parts
        ]
        columns = np.array(rows, np.int64).reshape(-1, 3)
        begin, end, tile = columns[np.argsort(columns[:, 0], kind="stable")].T
        return TileMapping(begin, end, tile, n_tiles)


def linear_intervals(
    n_elems: int, grain: int, n_tiles: int, min_elems: int
) -> tuple[np.ndarray, np.ndarray]:
    """Part boundaries that spread n_elems over at most n_tiles parts: (begin, end) per part.

    Poplar's rule: whole grains, at least `min_elems` per part, parts as equal as grains allow.
    """
    if n_elems == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    n_grains = -(-n_elems // grain)
    per_part = -(-n_grains // n_tiles)
    if min_elems > 0:
        n_parts_allowed = max(1, n_grains // -(-min_elems // grain))
        per_part = max(per_part, -(-n_grains // n_parts_allowed))
    n_parts = -(-n_grains // per_part)
    cuts = np.minimum(np.arange(n_parts + 1) * n_grains // n_parts * grain, n_elems)
    return cuts[:-1], cuts[1:]
