"""The sweeps of runs and intervals: unions, cuts at the places of a sorted column, addresses.

Intervals come mostly in ascending order, so overlaps are searched first where the one before
it was found, then by leaps from there that double: what is close takes few.
"""
# Columns are many, and a compiled function calls no other.
# ruff: noqa: ANN001, ANN201, C901, PLR0912, PLR0913, PLR0917

import numpy as np

from tremula.column_loops.sweep import Sweep, n_elements, sweep


def filled(fill: Sweep, n_columns: int, n_expected: int, *columns: np.ndarray | int) -> np.ndarray:
    """int64[n_columns, n]: what a sweep fills in and counts; if more than expected, in two turns.

    Many short columns are looked at: each argument of native code takes longer than a row.
    """
    result = np.empty((n_columns, n_expected), np.int64)
    (n,) = fill(*columns, result)
    if n > n_expected:
        result = np.empty((n_columns, n), np.int64)
        fill(*columns, result)
    return result[:, :n]


@sweep(n_elements)
def join_in_turn(begin, end, joined):
    """Fill in intervals, those that continue where the one before them is made one with it.

    Returns how many, and whether (1 or 0) they ascend, which makes them the union of all.
    """
    n, ascend, reached = 0, 1, 0
    for i in range(len(begin)):
        if end[i] <= begin[i]:
            continue
        if n == 0 or begin[i] > reached or begin[i] < joined[0, n - 1]:
            if n > 0 and begin[i] < reached:
                ascend = 0
            reached = end[i]
            joined[0, n] = begin[i]
            joined[1, n] = reached
            n += 1
        elif end[i] > reached:
            reached = end[i]
            joined[1, n - 1] = reached
    return n, ascend


@sweep(n_elements)
def find_entries(map_end, begin, entry):
    """Fill in the first entry of a sorted map that ends behind each address."""
    at, n = 0, len(map_end)
    for i in range(len(begin)):
        low = begin[i]
        if at < n and map_end[at] <= low:
            at += 1
        high, leap = at, 1
        if at < n and map_end[at] <= low:  # it is further on
            while at + leap < n and map_end[at + leap] <= low:
                at, leap = at + leap, leap + leap
            at, high = at + 1, min(at + leap, n)
        elif at > 0 and map_end[at - 1] > low:  # it is further back
            high = at - 1
            while high >= leap and map_end[high - leap] > low:
                high, leap = high - leap, leap + leap
            at = max(high - leap + 1, 0)
        while at < high:
            middle = (at + high) // 2
            if map_end[middle] > low:
                high = middle
            else:
                at = middle + 1
        entry[i] = at


@sweep(n_elements)
def cut_at_entries(map_begin, map_end, map_tile, begin, end, entry, parts):
    """Fill in (owner, begin, end, tile) of the parts of intervals in entries of a sorted map.

    entry[i] is the first that ends behind begin[i]. Returns how many there are; `parts` need not
    have room for all.
    """
    total, n = 0, len(map_end)
    for i in range(len(begin)):
        at = entry[i]
        while at < n and map_begin[at] < end[i]:
            if total < parts.shape[1]:
                parts[0, total] = i
                parts[1, total] = max(begin[i], map_begin[at])
                parts[2, total] = min(end[i], map_end[at])
                parts[3, total] = map_tile[at]
            total += 1
            at += 1
    return (total,)


@sweep(n_elements)
def all_in_entries(map_begin, map_end, begin, end, entry):
    """Whether (1 or 0) entries of a sorted map cover all intervals.

    entry[i] is the first that ends behind begin[i].
    """
    n = len(map_end)
    for i in range(len(begin)):
        low, at = begin[i], entry[i]
        while low < end[i]:
            if at == n or map_begin[at] > low:
                return (0,)
            low = map_end[at]
            if low < end[i]:
                at += 1
    return (1,)


@sweep(n_elements)
def count_pieces(piece_start, begin, end, first):
    """The piece in which each interval of positions begins; in how many parts all are cut."""
    at, total, n = 0, 0, len(piece_start) - 1
    for i in range(len(begin)):
        low = begin[i]
        if at < n and piece_start[at + 1] <= low:
            at += 1
        high, leap = at, 1
        if piece_start[at] > low:  # it is further back
            while at >= leap and piece_start[at - leap] > low:
                at, leap = at - leap, leap + leap
            at, high = max(at - leap, 0), at - 1
        elif at < n and piece_start[at + 1] <= low:  # it is further on
            while at + leap <= n and piece_start[at + leap] <= low:
                at, leap = at + leap, leap + leap
            high = min(at + leap, n + 1) - 1
        while at < high:
            middle = (at + high + 1) // 2
            if piece_start[middle] <= low:
                at = middle
            else:
                high = middle - 1
        first[i] = at
        piece = at
        while low < end[i] and piece < n:
            if piece_start[piece + 1] > low:
                low = piece_start[piece + 1]
                total += 1
            piece += 1
    return (total,)


@sweep(n_elements)
def cut_at_pieces(
    piece_start, piece_address, piece_stride, begin, end, first, start, count, stride, owner
):
    """Fill in the runs of intervals of positions that `count_pieces` found."""
    at, n = 0, len(piece_start) - 1
    for i in range(len(begin)):
        low, piece = begin[i], first[i]
        while low < end[i] and piece < n:
            if piece_start[piece + 1] > low:
                high = min(end[i], piece_start[piece + 1])
                stride[at] = piece_stride[piece]
                start[at] = piece_address[piece] + stride[at] * (low - piece_start[piece])
                count[at] = high - low
                owner[at] = i
                low = high
                at += 1
            piece += 1


@sweep(lambda *columns: int(columns[4].sum()))
def look_up_strided(
    piece_start, piece_address, piece_stride, start, count, stride, at_place, begin, length
):
    """Fill in begin and length of runs of stride 1: addresses of runs of positions in pieces.

    Piece i has the positions from piece_start[i] on. Returns how many runs there are, at most one
    for each position. `at_place`, zeros for the first places of a run, is scratch: the piece there
    in the run before, which in a transposed view is also that of the next run.
    """
    at, n, behind, n_pieces, n_places = 0, 0, -1, len(piece_address), len(at_place)
    for i in range(len(start)):
        for k in range(count[i]):
            position = start[i] + stride[i] * k
            is_here = piece_start[at] <= position and piece_start[at + 1] > position
            if k < n_places and at_place[k] > 0 and not is_here:
                at = at_place[k]
                if piece_start[at + 1] <= position:
                    at = min(at + 1, n_pieces - 1)
            if piece_start[at] > position or piece_start[at + 1] <= position:
                # Leaps of one length mostly reach a piece close by: look further from there.
                low, high, leap = 0, n_pieces - 1, 1
                if piece_start[at] <= position:
                    low = at
                    while low + leap < n_pieces and piece_start[low + leap] <= position:
                        low += leap
                        leap += leap
                    high = min(low + leap, n_pieces) - 1
                while low < high:
                    middle = (low + high + 1) // 2
                    if piece_start[middle] <= position:
                        low = middle
                    else:
                        high = middle - 1
                at = low
            if k < n_places:
                at_place[k] = at
            address = piece_address[at] + piece_stride[at] * (position - piece_start[at])
            if address == behind:
                length[n - 1] += 1
            else:
                begin[n] = address
                length[n] = 1
                n += 1
            behind = address + 1
    return (n,)


@sweep(n_elements)
def cover_runs(start, count, stride, n_bytes, intervals):
    """Fill in (begin, end, run) of the byte intervals that runs cover.

    One for a contiguous run, or one of stride 0, else one for each element. Returns how many there
    are; `intervals` need not have room for all.
    """
    at = 0
    for i in range(len(start)):
        n, size = count[i], n_bytes
        if stride[i] == 1:
            n, size = 1, count[i] * n_bytes
        if stride[i] == 0:
            n = 1
        if at + n <= intervals.shape[1]:
            for k in range(n):
                low = (start[i] + stride[i] * k) * n_bytes
                intervals[0, at + k] = low
                intervals[1, at + k] = low + size
                intervals[2, at + k] = i
        at += n
    return (at,)


@sweep(lambda *columns: 2 * int(columns[1].sum()))
def mark_runs(start, count, stride, first, is_marked):
    """Mark the elements of runs, that at address `first` at place 0: how many were not before."""
    n_new = 0
    for i in range(len(start)):
        for k in range(count[i]):
            at = start[i] + stride[i] * k - first
            n_new += 1 - is_marked[at]
            is_marked[at] = 1
    return (n_new,)


@sweep(n_elements)
def unroll_runs(start, count, stride, address):
    """Fill in every element address of runs, in order."""
    at = 0
    for i in range(len(start)):
        for k in range(count[i]):
            address[at] = start[i] + stride[i] * k
            at += 1


@sweep(n_elements)
def rows_of_runs(sub_start, run_start, row):
    """Fill in the row of each run: rows have sub-vectors, and these have runs."""
    for i in range(len(sub_start) - 1):
        for run in range(run_start[sub_start[i]], run_start[sub_start[i + 1]]):
            row[run] = i


@sweep(n_elements)
def add_per_tile(tile, amount, total):
    """Add each amount to the total of its tile."""
    for i in range(len(tile)):
        total[tile[i]] += amount[i]


@sweep(n_elements)
def mark_holders(address, base, is_marked):
    """Mark the variables that hold addresses: each the last that begins at or before one."""
    at, n = 0, len(base)
    for i in range(len(address)):
        if base[at] <= address[i] and (at + 1 == n or address[i] < base[at + 1]):
            is_marked[at] = 1
            continue
        at, high = 0, n - 1
        while at < high:
            middle = (at + high + 1) // 2
            if base[middle] <= address[i]:
                at = middle
            else:
                high = middle - 1
        is_marked[at] = 1


@sweep(n_elements)
def number_holders(start, count, n_bytes, base, first, number, met, slot):
    """Number the variables that hold runs as they are met: `slot` of each run, -1 of an empty one.

    `base` are where variables begin; `number` of each is its slot, or -1. Those without one get
    the numbers from `first` on, and are filled in `met`. Returns how many these are.
    """
    n_new, at, n = 0, 0, len(base)
    for i in range(len(start)):
        slot[i] = -1
        if count[i] == 0:
            continue
        address = start[i] * n_bytes
        if base[at] > address or (at + 1 < n and base[at + 1] <= address):
            at, high = 0, n - 1
            while at < high:
                middle = (at + high + 1) // 2
                if base[middle] <= address:
                    at = middle
                else:
                    high = middle - 1
        if number[at] < 0:
            number[at] = first + n_new
            met[n_new] = at
            n_new += 1
        slot[i] = number[at]
    return (n_new,)
