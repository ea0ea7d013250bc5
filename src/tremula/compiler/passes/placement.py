"""Placement: where on a tile things go, and what gaps and overflow result.

From the bottom of a tile's memory: code, which must be in region 0; everything else that is always
live; above it temporary variables, first-fit by the span of time in which they are live, those of
functions below those of their callers (frames.py). Always-live data that wants interleaved memory
lies at the top, in region 1. Variables whose codelets demand different memory elements start
at element boundaries: no two of them then share an element.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, TypeVar

import numpy as np

from tremula.compiler.file.codec import record
from tremula.compiler.passes.frames import Frames
from tremula.compiler.passes.intervals import edge_bytes, merge_per_group
from tremula.compiler.passes.liveness import LiveRanges
from tremula.compiler.passes.sweeps import (
    deal_to_tiles,
    mark_entries,
    place_ranges,
    raise_above,
    raise_tops,
    scratch_to_place,
)
from tremula.compiler.program_ir import FrozenComputeSet, FrozenGraph
from tremula.hardware import Chip
from tremula.poplar.vertices.columns import FrozenTable
from tremula.poplar.vertices.compute_set import TemplateInstance
from tremula.poplar.vertices.template import ComputeSetTemplate

Ints = np.ndarray
Number = TypeVar("Number", int, Ints)
_ELEMENT_OF_FIELD = re.compile(r"elem\(\s*\*\s*(\w+)")
ALIGN_BYTES = 8  # of every variable: one load
_N_TILES_AT_ONCE = 64  # whose columns are in memory together


@record
@dataclass(frozen=True, slots=True)
class SpecialMemory:
    """What variables want of memory, tile by tile: sorted entries of the liveness CSR."""

    interleaved: Ints
    apart: Ints  # want separate memory elements


@record
@dataclass(frozen=True, slots=True)
class Placement:
    """int64[n_tiles] columns, in bytes."""

    including_gaps: Ints  # up to the highest byte used, and the interleaved block at the top
    region0: Ints  # used bytes of each region, gaps left out
    region1: Ints
    overflowed: Ints  # what does not fit; 0 where everything does
    special: SpecialMemory


@dataclass(frozen=True, slots=True)
class Needs:
    """int64[n_tiles] bytes that a tile needs besides its always-live variables."""

    code: Ints  # must be in region 0
    fixed: Ints  # always live
    peak: Ints  # the largest sum of temporary bytes, buffers included


def place(graph: FrozenGraph, liveness: LiveRanges, needs: Needs) -> Placement:
    """Place all tiles."""
    return place_on(graph.target.chip, liveness, _special_memory(graph, liveness), needs)


def place_on(chip: Chip, liveness: LiveRanges, special: SpecialMemory, needs: Needs) -> Placement:
    """Place everything on tiles of a given chip, whose memory may differ in size."""
    items = _Items(chip, liveness, special, needs)
    excluding = items.floor + items.bytes_where(items.is_always & items.is_apart)
    excluding = excluding + needs.peak + items.top
    highest = reduce(np.maximum, (top for _, _, top in items.levels()), items.floor)
    including = np.maximum(highest + items.top, excluding)
    available = chip.n_bytes_available_per_tile
    region0 = np.minimum(excluding - items.top, chip.n_bytes_region0)
    region1 = np.minimum(excluding - region0, max(0, available - chip.n_bytes_region0))
    too_much = np.maximum(including - available, 0)
    too_much = np.maximum(too_much, needs.code - chip.n_bytes_region0)
    too_much = np.maximum(too_much, items.top - chip.n_bytes_region1)
    return Placement(including, region0, region1, too_much, special)


def addresses(chip: Chip, liveness: LiveRanges, special: SpecialMemory, needs: Needs) -> Ints:
    """int64[n_entries]: where on its tile each entry of the liveness CSR lies; -1 for nowhere."""
    items = _Items(chip, liveness, special, needs)
    result = np.full(len(liveness.tile), -1, np.int64)
    for entry, address, _ in items.levels():
        result[entry] = address
    for chosen, begin in (
        (items.is_plain, needs.code + needs.fixed),
        (items.is_top, chip.n_bytes_available_per_tile - items.top),
    ):
        mine = np.flatnonzero(chosen)
        mine = mine[np.argsort(liveness.tile[mine], kind="stable")]
        tile, n_bytes = liveness.tile[mine], liveness.tile_bytes[mine]
        before = np.cumsum(n_bytes) - n_bytes
        first_of_tile = np.searchsorted(tile, tile)
        result[mine] = begin[tile] + before - before[first_of_tile]
    return result


# Where the items of each tile start, and the first and last instruction of each item.
_Ranges = tuple[Ints, Ints, Ints]


class _Items:
    """Entries of the liveness CSR by how they are placed."""

    def __init__(self, chip: Chip, liveness: LiveRanges, special: SpecialMemory, needs: Needs):
        self.chip, self.liveness, self.n_tiles = chip, liveness, len(needs.code)
        self.is_interleaved, self.is_apart = np.zeros((2, len(liveness.tile)), bool)
        self.is_interleaved[special.interleaved] = True
        self.is_apart[special.apart] = True
        self.is_always = np.repeat(liveness.always_live, np.diff(liveness.tile_start))
        self.is_top = self.is_always & self.is_interleaved & ~self.is_apart
        self.is_plain = self.is_always & ~self.is_interleaved & ~self.is_apart
        self.top = self.bytes_where(self.is_top)
        is_special = self.is_always & (self.is_interleaved | self.is_apart)
        plain = liveness.always_live_bytes(self.n_tiles) - self.bytes_where(is_special)
        self.floor = _aligned(needs.code + needs.fixed + plain)

    def bytes_where(self, chosen: Ints) -> Ints:
        tile, n_bytes = self.liveness.tile[chosen], self.liveness.tile_bytes[chosen]
        return np.bincount(tile, weights=n_bytes, minlength=self.n_tiles).astype(np.int64)

    def levels(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Of what is placed one by one: entries, addresses; int64[n_tiles]: the highest byte.

        Frames of functions are placed before those of their callers, each as low as it can be. What
        a caller needs during a call lies above the frame. Always-live entries that lie apart are
        the first of all frames, and so get the same addresses in each, and are there for each.
        """
        frames = self.liveness.frames
        tops = np.zeros((len(frames.level), self.n_tiles), np.int64)
        for level in range(int(frames.level.max()) + 1):
            yield self._place_level(frames, level, tops)

    def _place_level(self, frames: Frames, level: int, tops: Ints) -> tuple[Ints, Ints, Ints]:
        """Place the frames of the functions of a level, and note their tops."""
        always = self.liveness.always_live
        is_mine = (frames.owner >= 0) & (frames.level[frames.owner] == level) & ~always
        begin = np.where(always, -1, np.where(is_mine, frames.first, -1))
        end = np.where(always, np.iinfo(np.int64).max, np.where(is_mine, frames.last, -1))
        start, entry, variable = self._by_tile(begin, end)
        above = self._above_calls(frames, level, tops)
        address, highest = np.empty(len(entry), np.int64), np.zeros(self.n_tiles, np.int64)
        frame = np.where(is_mine, frames.owner, -1)
        for low in range(0, self.n_tiles, _N_TILES_AT_ONCE):
            starts = start[low : low + _N_TILES_AT_ONCE + 1]
            mine = slice(starts[0], starts[-1])
            on_tiles, results = slice(low, low + _N_TILES_AT_ONCE), address[mine]
            ranges = starts - starts[0], begin[variable[mine]], end[variable[mine]]
            self._place_items(entry[mine], ranges, above, results, highest[on_tiles])
            tile, n_bytes = self.liveness.tile[entry[mine]], self.liveness.tile_bytes[entry[mine]]
            raise_tops(variable[mine], tile, results, n_bytes, frame, tops)
        for caller, callee in zip(frames.caller.tolist(), frames.callee.tolist(), strict=True):
            if frames.level[caller] == level:
                tops[caller] = np.maximum(tops[caller], tops[callee])
        return entry, address, highest

    def _place_items(
        self,
        entry: Ints,
        ranges: tuple[Ints, Ints, Ints],
        above: Ints,
        address: Ints,
        highest: Ints,
    ) -> None:
        """Fill in addresses of entries: where those of each tile start, when they begin and end."""
        tile, n_bytes = self.liveness.tile[entry], self.liveness.tile_bytes[entry]
        lowest = np.maximum(self.floor[tile], above[entry])
        np.maximum(lowest, self.chip.n_bytes_region0, out=lowest, where=self.is_interleaved[entry])
        align = np.where(self.is_apart[entry], self.chip.n_bytes_memory_element, ALIGN_BYTES)
        sizes = n_bytes, _aligned(n_bytes), _aligned(lowest), align, ALIGN_BYTES
        place_ranges(*ranges, *sizes, address, highest, *scratch_to_place(*ranges[:2]))

    def _above_calls(self, frames: Frames, level: int, tops: Ints) -> Ints:
        """int64[n_entries]: the highest top of what is called while an entry's variable is live."""
        live, over = self.liveness, dict[int, Ints]()
        result = np.zeros(len(live.tile), np.int64)
        calls = np.stack((frames.caller, frames.callee, frames.call), axis=1)
        for caller, callee, call in calls.tolist():
            if frames.level[caller] == level:
                is_live = (frames.first <= call) & (frames.last >= call)
                is_over = (frames.owner == caller) & is_live & ~live.always_live
                over[callee] = over.get(callee, False) | is_over
        for callee, is_over in over.items():
            raise_above(is_over, live.tile_start, live.tile, tops[callee], result)
        return result

    def _by_tile(self, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Temporary variables, and always-live ones that lie apart, as they are placed.

        Entries of tile t, and their variables, are start[t] … start[t+1]: by `begin`, larger ones
        first.
        """
        live = self.liveness
        is_temporary = np.repeat((end >= 0) & ~live.always_live, np.diff(live.tile_start))
        is_placed = is_temporary | (self.is_always & self.is_apart)
        n_on_tile = np.bincount(live.tile[is_placed], minlength=self.n_tiles)
        start = np.concatenate(([0], np.cumsum(n_on_tile)))
        n_bytes, has_any = np.zeros(len(begin), np.int64), np.diff(live.tile_start) > 0
        if has_any.any():
            n_bytes[has_any] = np.add.reduceat(live.tile_bytes, live.tile_start[:-1][has_any])
        order = np.lexsort((-n_bytes, begin))
        entry, variable = np.empty((2, int(start[-1])), np.int32)  # they are many
        columns = live.tile_start, live.tile, live.tile_bytes, is_placed
        deal_to_tiles(order, begin, *columns, start, start[:-1].copy(), entry, variable)
        return start, entry, variable


def _aligned(n_bytes: Number) -> Number:
    """The next multiple of the least alignment, which is a power of two."""
    return (n_bytes + (ALIGN_BYTES - 1)) & -ALIGN_BYTES


class _SpecialField(NamedTuple):
    """What a field wants for its part of variables, each on one tile."""

    variable: Ints  # or slots of a template
    tile: Ints
    is_interleaved: bool
    is_apart: bool


def _special_memory(graph: FrozenGraph, liveness: LiveRanges) -> SpecialMemory:
    is_interleaved, is_apart = np.zeros((2, len(liveness.tile)), bool)
    of_template: dict[tuple[ComputeSetTemplate, int], list[_SpecialField]] = {}
    for compute_set, first in zip(graph.compute_sets, graph.set_numbers(), strict=True):
        of = compute_set.contents
        if isinstance(of, TemplateInstance):
            variables = np.array(of.variables, np.int64)
            key = (of.template, first)
            if key not in of_template:
                result = [_by_slot(w, variables) for w in _special_fields(graph, compute_set)]
                of_template[key] = result
            result = [w._replace(variable=variables[w.variable]) for w in of_template[key]]
        else:
            result = _special_fields(graph, compute_set)
        for field in result:
            where = liveness.tile_start, liveness.tile, field.variable, field.tile
            for is_wanted, is_marked in (
                (field.is_interleaved, is_interleaved),
                (field.is_apart, is_apart),
            ):
                if is_wanted:
                    mark_entries(*where, is_marked)
    return SpecialMemory(np.flatnonzero(is_interleaved), np.flatnonzero(is_apart))


def _by_slot(field: _SpecialField, variables: Ints) -> _SpecialField:
    order = np.argsort(variables)
    slots = order[np.searchsorted(variables, field.variable, sorter=order)]
    return field._replace(variable=slots)


def _special_fields(graph: FrozenGraph, compute_set: FrozenComputeSet) -> list[_SpecialField]:
    if not any(_wants(table) for table in compute_set.template_tables):
        return []
    return [
        _SpecialField(*_reached(graph, table, name), *wants)
        for table in compute_set.tables
        for name, wants in _wants(table).items()
    ]


def _wants(table: FrozenTable) -> dict[str, tuple[bool, bool]]:
    """(needs interleaved memory, needs separate elements) of every field that needs either."""
    spec = table.codelet.spec
    apart = {name for c in spec.constraints for name in _ELEMENT_OF_FIELD.findall(c)}
    return {
        field.name: (field.is_interleaved, field.name in apart)
        for field in spec.fields
        if field.is_edge and (field.is_interleaved or field.name in apart)
    }


def _reached(graph: FrozenGraph, table: FrozenTable, name: str) -> tuple[Ints, Ints]:
    """(variable, tile) of what a field reaches on its vertex's own tile."""
    span, n_tiles = graph.variables.n_bytes, graph.target.n_tiles
    begin, end, row, _ = edge_bytes(table, table.codelet.spec.field(name))
    tile, low, high = merge_per_group(table.tile[row], begin, end, n_tiles, span)[:3]
    owner, low, _, home = graph.tile_map.split(low, high)
    here = tile[owner] == home
    wanted = np.unique(graph.variables.ids_at(low[here]) * n_tiles + home[here])
    return wanted // n_tiles, wanted % n_tiles
