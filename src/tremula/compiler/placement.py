"""Placement: where on a tile things go, and what gaps and overflow result.

From the bottom of a tile's memory: code, which must be in region 0; everything else that is always
live; above it temporary variables, first-fit by live range. Always-live data that wants interleaved
memory lies at the top, in region 1. Variables whose codelets demand different memory elements start
at element boundaries: no two of them then share an element.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tremula.compiler.codec import record
from tremula.compiler.form import FrozenComputeSet, FrozenGraph
from tremula.compiler.intervals import edge_bytes, merge_per_group
from tremula.compiler.liveness import Liveness
from tremula.poplar.compute_set import Modelled
from tremula.poplar.set_model import SetModel
from tremula.poplar.vertex_columns import FrozenTable

Ints = np.ndarray
_ELEMENT_OF_FIELD = re.compile(r"elem\(\s*\*\s*(\w+)")
ALIGN_BYTES = 8  # of every variable: one load


@record
@dataclass(frozen=True, slots=True)
class Placement:
    """int64[n_tiles] columns, in bytes."""

    including_gaps: Ints  # up to the highest byte used, and the interleaved block at the top
    region0: Ints  # used bytes of each region, gaps left out
    region1: Ints
    overflowed: Ints  # what does not fit; 0 where all is well


@dataclass(frozen=True, slots=True)
class _Wishes:
    """bool per (variable, tile) entry of the liveness CSR."""

    is_interleaved: Ints
    is_apart: Ints  # wants memory elements of its own


def place(
    graph: FrozenGraph, liveness: Liveness, code_bytes: Ints, fixed_bytes: Ints, peak_bytes: Ints
) -> Placement:
    """Place all tiles.

    int64[n_tiles]: `code_bytes` must be in region 0; `fixed_bytes` are always live besides
    variables and code; `peak_bytes` is the largest sum of temporary bytes, buffers included.
    """
    chip, n_tiles = graph.target.chip, graph.target.n_tiles
    variable = np.repeat(np.arange(len(liveness.always_live)), np.diff(liveness.tile_start))
    wishes = _wishes(graph, liveness, variable)
    is_always = liveness.always_live[variable]
    top = _bytes_where(liveness, is_always & wishes.is_interleaved & ~wishes.is_apart, n_tiles)
    plain = is_always & ~wishes.is_interleaved & ~wishes.is_apart
    floor = code_bytes + fixed_bytes + _bytes_where(liveness, plain, n_tiles)
    floor = -(-floor // ALIGN_BYTES) * ALIGN_BYTES
    highest = np.maximum(_place_items(graph, liveness, wishes, variable, floor), floor)
    apart = _bytes_where(liveness, is_always & wishes.is_apart, n_tiles)
    excluding = floor + apart + peak_bytes + top
    including = np.maximum(highest + top, excluding)
    available = chip.n_bytes_available_per_tile
    region0 = np.minimum(excluding - top, chip.n_bytes_region0)
    region1 = np.minimum(excluding - region0, max(0, available - chip.n_bytes_region0))
    too_much = np.maximum(including - available, 0)
    too_much = np.maximum(too_much, code_bytes - chip.n_bytes_region0)
    too_much = np.maximum(too_much, top - chip.n_bytes_region1)
    return Placement(including, region0, region1, too_much)


def _place_items(
    graph: FrozenGraph, liveness: Liveness, wishes: _Wishes, variable: Ints, floor: Ints
) -> Ints:
    """int64[n_tiles]: the highest byte of what is placed one by one."""
    from tremula.compiler.sweeps import place_ranges

    chip, n_tiles = graph.target.chip, graph.target.n_tiles
    entry, first, last = _items(liveness, wishes, variable)
    if not len(entry):
        return np.zeros(n_tiles, np.int64)
    tile, n_bytes = liveness.tile[entry], liveness.tile_bytes[entry]
    order = np.lexsort((-n_bytes, first, tile))
    entry, tile, n_bytes = entry[order], tile[order], n_bytes[order]
    lowest = floor[tile]
    interleaved = wishes.is_interleaved[entry]
    lowest = np.where(interleaved, np.maximum(lowest, chip.n_bytes_region0), lowest)
    align = np.where(wishes.is_apart[entry], chip.n_bytes_memory_element, ALIGN_BYTES)
    start = np.searchsorted(tile, np.arange(n_tiles + 1))
    address, active = np.zeros((2, len(entry)), np.int64)
    highest = np.zeros(n_tiles, np.int64)
    ranges = (start, first[order], last[order], n_bytes)
    place_ranges(*ranges, lowest, align, address, active, highest)
    return highest


def _items(liveness: Liveness, wishes: _Wishes, variable: Ints) -> tuple[Ints, Ints, Ints]:
    """(entry, first, last): temporary variables, and always-live ones that lie apart."""
    n_variables = len(liveness.always_live)
    first = np.full(n_variables, np.iinfo(np.int64).max)
    last = np.full(n_variables, -1, np.int64)
    np.minimum.at(first, liveness.range_variable, liveness.range_first)
    np.maximum.at(last, liveness.range_variable, liveness.range_last)
    is_always = liveness.always_live[variable]
    entry = np.flatnonzero((last[variable] >= 0) & ~is_always | is_always & wishes.is_apart)
    always = is_always[entry]
    begin = np.where(always, -1, first[variable[entry]])
    end = np.where(always, np.iinfo(np.int64).max, last[variable[entry]])
    return entry, begin, end


def _bytes_where(liveness: Liveness, chosen: Ints, n_tiles: int) -> Ints:
    weights = liveness.tile_bytes * chosen
    return np.bincount(liveness.tile, weights=weights, minlength=n_tiles).astype(np.int64)


class _Wish(NamedTuple):
    """What a field wants for its part of variables, each on one tile."""

    variable: Ints  # or slots of a model
    tile: Ints
    is_interleaved: bool
    is_apart: bool


def _wishes(graph: FrozenGraph, liveness: Liveness, variable: Ints) -> _Wishes:
    n_tiles = graph.target.n_tiles
    entry_of = variable * n_tiles + liveness.tile
    is_interleaved, is_apart = np.zeros((2, len(entry_of)), bool)
    of_model: dict[tuple[SetModel, int], list[_Wish]] = {}
    for compute_set, first in zip(graph.compute_sets, graph.set_numbers(), strict=True):
        of = compute_set.contents
        if isinstance(of, Modelled):
            variables = np.array(of.variables, np.int64)
            key = (of.model, first)
            if key not in of_model:
                found = [_wish_for_slots(w, variables) for w in _wishes_of_set(graph, compute_set)]
                of_model[key] = found
            found = [w._replace(variable=variables[w.variable]) for w in of_model[key]]
        else:
            found = _wishes_of_set(graph, compute_set)
        for wish in found:
            entry = np.searchsorted(entry_of, wish.variable * n_tiles + wish.tile)
            is_interleaved[entry] |= wish.is_interleaved
            is_apart[entry] |= wish.is_apart
    return _Wishes(is_interleaved, is_apart)


def _wish_for_slots(wish: _Wish, variables: Ints) -> _Wish:
    order = np.argsort(variables)
    slots = order[np.searchsorted(variables, wish.variable, sorter=order)]
    return wish._replace(variable=slots)


def _wishes_of_set(graph: FrozenGraph, compute_set: FrozenComputeSet) -> list[_Wish]:
    if not any(_wishing_fields(table) for table in compute_set.tables_somewhere):
        return []
    return [
        _Wish(*_reached(graph, table, name), *wants)
        for table in compute_set.tables
        for name, wants in _wishing_fields(table).items()
    ]


def _wishing_fields(table: FrozenTable) -> dict[str, tuple[bool, bool]]:
    """Of every field that wants something: whether interleaved memory, whether elements apart."""
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
    tile, low, high = merge_per_group(table.tile[row], begin, end, span)
    owner, low, _, home = graph.tile_map.split(low, high)
    here = tile[owner] == home
    wanted = np.unique(graph.variables.ids_at(low[here]) * n_tiles + home[here])
    return wanted // n_tiles, wanted % n_tiles
