"""Placement: where on a tile things go, and what gaps and overflow result.

From the bottom of a tile's memory: code, which must be in region 0; everything else that is always
live; above it temporary variables, first-fit by the span of time in which they are live, those of
functions below those of their callers (frames.py). Always-live data that wants interleaved memory
lies at the top, in region 1. Variables whose codelets demand different memory elements start
at element boundaries: no two of them then share an element.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from tremula.compiler.file.codec import record
from tremula.compiler.passes.frames import Frames
from tremula.compiler.passes.intervals import edge_bytes, merge_per_group, sum_per_tile
from tremula.compiler.passes.liveness import LiveRanges
from tremula.compiler.passes.sweeps import (
    count_dealt,
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
    excluding = items.floor + items.apart_bytes + needs.peak + items.top
    including = np.maximum(items.place_levels() + items.top, excluding)
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
    items.place_levels(result)
    is_plain = np.repeat(liveness.always_live, np.diff(liveness.tile_start))
    is_plain[special.interleaved] = is_plain[special.apart] = False
    for mine, begin in (
        (np.flatnonzero(is_plain), needs.code + needs.fixed),
        (items.top_entries, chip.n_bytes_available_per_tile - items.top),
    ):
        in_order = mine[np.argsort(liveness.tile[mine], kind="stable")]
        tile, n_bytes = liveness.tile[in_order], liveness.tile_bytes[in_order]
        before = np.cumsum(n_bytes) - n_bytes
        first_of_tile = np.searchsorted(tile, tile)
        result[in_order] = begin[tile] + before - before[first_of_tile]
    return result


# Where the items of each tile start, and the first and last instruction of each item.
_Ranges = tuple[Ints, Ints, Ints]


class _Items:
    """Entries of the liveness CSR by how they are placed.

    There are millions of them: most columns are of variables, or of a few tiles at once.
    """

    def __init__(self, chip: Chip, liveness: LiveRanges, special: SpecialMemory, needs: Needs):
        self.chip, self.liveness, self.n_tiles = chip, liveness, len(needs.code)
        self.is_interleaved, self.is_apart = np.zeros((2, len(liveness.tile)), bool)
        self.is_interleaved[special.interleaved] = True
        self.is_apart[special.apart] = True
        at_top = special.interleaved[~self.is_apart[special.interleaved]]
        self.top_entries = at_top[self._is_always(at_top)]
        self.top = self._bytes_of(self.top_entries)
        self.apart_bytes = self._bytes_of(special.apart[self._is_always(special.apart)])
        plain = liveness.always_live_bytes(self.n_tiles) - self.top - self.apart_bytes
        self.floor = _aligned(needs.code + needs.fixed + plain)

    def _is_always(self, entries: Ints) -> Ints:
        """Whether the variables of entries are always live."""
        variable = np.searchsorted(self.liveness.tile_start, entries, side="right") - 1
        return self.liveness.always_live[variable]

    def _bytes_of(self, entries: Ints) -> Ints:
        """int64[n_tiles]: bytes of some entries."""
        live = self.liveness
        return sum_per_tile(live.tile[entries], live.tile_bytes[entries], self.n_tiles)

    def place_levels(self, address: Ints | None = None) -> Ints:
        """Place what is placed one by one; returns int64[n_tiles], the end of the highest of it.

        Frames of functions are placed before those of their callers, each as low as it can be. What
        a caller needs during a call lies above the frame. Always-live entries that lie apart are
        the first of all frames, and so get the same addresses in each, and are there for each.
        Fills in `address` of the entries if there is one.
        """
        frames = self.liveness.frames
        tops = np.zeros((len(frames.level), self.n_tiles), np.int64)
        highest = self.floor.copy()
        for level in range(int(frames.level.max()) + 1):
            self._place_level(frames, level, tops, highest, address)
        return highest

    def _place_level(
        self, frames: Frames, level: int, tops: Ints, highest: Ints, address: Ints | None
    ) -> None:
        """Place the frames of the functions of a level, and note their tops."""
        always = self.liveness.always_live
        is_mine = (frames.owner >= 0) & (frames.level[frames.owner] == level) & ~always
        begin = np.where(always, -1, np.where(is_mine, frames.first, -1))
        end = np.where(always, np.iinfo(np.int64).max, np.where(is_mine, frames.last, -1))
        start, entry, variable = self._by_tile(begin, end)
        over = self._over_calls(frames, level)
        frame = np.where(is_mine, frames.owner, -1)
        for low in range(0, self.n_tiles, _N_TILES_AT_ONCE):
            starts = start[low : low + _N_TILES_AT_ONCE + 1]
            mine, of = entry[starts[0] : starts[-1]], variable[starts[0] : starts[-1]]
            tile, n_bytes = self.liveness.tile[mine], self.liveness.tile_bytes[mine]
            lowest = self.floor[tile]
            raise_above(*over, of, tile, tops, lowest)
            ranges = starts - starts[0], begin[of], end[of]
            results = np.empty(len(mine), np.int64)
            on_tiles = highest[low : low + _N_TILES_AT_ONCE]
            self._place_items(mine, ranges, lowest, n_bytes, results, on_tiles)
            raise_tops(of, tile, results, n_bytes, frame, tops)
            if address is not None:
                address[mine] = results
        for caller, callee in zip(frames.caller.tolist(), frames.callee.tolist(), strict=True):
            if frames.level[caller] == level:
                tops[caller] = np.maximum(tops[caller], tops[callee])

    def _place_items(
        self,
        entry: Ints,
        ranges: tuple[Ints, Ints, Ints],
        lowest: Ints,
        n_bytes: Ints,
        address: Ints,
        highest: Ints,
    ) -> None:
        """Fill in addresses of entries: where those of each tile start, when they begin and end."""
        np.maximum(lowest, self.chip.n_bytes_region0, out=lowest, where=self.is_interleaved[entry])
        align = np.where(self.is_apart[entry], self.chip.n_bytes_memory_element, ALIGN_BYTES)
        sizes = n_bytes, _aligned(n_bytes), _aligned(lowest), align, ALIGN_BYTES
        place_ranges(*ranges, *sizes, address, highest, *scratch_to_place(*ranges[:2]))

    def _over_calls(self, frames: Frames, level: int) -> tuple[Ints, Ints]:
        """CSR of each variable's functions: what is called while the variable is live."""
        always, over = self.liveness.always_live, dict[int, Ints]()
        calls = np.stack((frames.caller, frames.callee, frames.call), axis=1)
        for caller, callee, call in calls.tolist():
            if frames.level[caller] == level:
                is_live = (frames.first <= call) & (frames.last >= call)
                is_over = (frames.owner == caller) & is_live & ~always
                over[callee] = over.get(callee, False) | is_over
        callees = np.array(list(over), np.int64)
        variable, row = np.nonzero(np.reshape(list(over.values()), (len(over), len(always))).T)
        n_of_variable = np.bincount(variable, minlength=len(always))
        return np.concatenate(([0], np.cumsum(n_of_variable))), callees[row]

    def _by_tile(self, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Temporary variables, and always-live ones that lie apart, as they are placed.

        Entries of tile t, and their variables, are start[t] … start[t+1]: by `begin`, larger ones
        first.
        """
        live = self.liveness
        share = np.where(live.always_live, 1, np.where(end >= 0, 2, 0))
        n_on_tile = np.zeros(self.n_tiles, np.int64)
        count_dealt(live.tile_start, live.tile, share, self.is_apart, n_on_tile)
        start = np.concatenate(([0], np.cumsum(n_on_tile)))
        order = np.lexsort((-live.bytes_of_variables(), begin))
        entry, variable = np.empty((2, int(start[-1])), np.int32)  # they are many
        columns = live.tile_start, live.tile, live.tile_bytes, share, self.is_apart
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
