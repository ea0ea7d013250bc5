"""Non-zeros spread over buckets: rows of a sub-group go to its buckets, what is too much to others.

A *piece* is a run of a row's non-zeros within one sub-group, and the bucket it went to. Buckets are
numbered PN = sub-group · Pz + z. Compiled, since it runs whenever a pattern changes.
"""

# Numba types what it compiles by itself, and has no objects to bundle arguments in.
# ruff: noqa: ANN001, ANN202, PLR0917

from typing import NamedTuple

import numpy as np

from tremula.codelets.native.stored_code import jit

Ints = np.ndarray


class PatternPieces(NamedTuple):
    """Columns, in the order of buckets; `begin` counts non-zeros in the order of rows."""

    bucket: Ints
    sub_group: Ints
    row: Ints
    begin: Ints
    length: Ints


class BucketLimits(NamedTuple):
    """What a bucket holds: values (in blocks) and words; words of a sub-group besides its rows."""

    n_values: int
    n_words: int
    n_fixed: int


@jit()
def rows_and_columns(pointers, columns, side):  # noqa: ANN201
    """Rows and columns of blocks of a CSR matrix, and its first entry out of order, or -1."""
    n, area = len(columns), side * side
    row, column = np.empty(n, np.int32), np.empty(n, np.int32)
    wrong = -1
    for r in range(len(pointers) - 1):
        last = -1
        for i in range(pointers[r] // area, pointers[r + 1] // area):
            row[i], column[i] = r, columns[i] if side == 1 else columns[i] // side
            if column[i] <= last and wrong < 0:
                wrong = i
            last = column[i]
    return row, column, wrong


@jit()
def gathered(values, source):  # noqa: ANN201
    """values[source], zero where there is none."""
    out = np.zeros(len(source), values.dtype)
    for i in range(len(source)):
        if source[i] >= 0:
            out[i] = values[source[i]]
    return out


@jit()
def _segments(row, column, tile_x, tile_y, n_y):
    """Runs of non-zeros in one row and one sub-group: (sub-group, row, begin, length)."""
    n = len(row)
    sub, at = np.empty(n, np.int64), np.empty(n, np.int64)
    begin, length = np.empty(n, np.int64), np.empty(n, np.int64)
    count, last_row, end = 0, -1, 0
    for i in range(n):
        if row[i] != last_row or column[i] >= end:
            y = column[i] // tile_y
            last_row, end = row[i], (y + 1) * tile_y
            sub[count] = (row[i] // tile_x) * n_y + y
            at[count], begin[count], length[count] = row[i], i, 0
            count += 1
        length[count - 1] += 1
    return sub[:count], at[:count], begin[:count], length[:count]


@jit()
def _dealt(sub, row, begin, length, n_sub, n_z):
    """Segments dealt evenly to the buckets of their sub-groups, cut where a bucket is full."""
    totals, counts = np.zeros(n_sub + 1, np.int64), np.zeros(n_sub + 1, np.int64)
    for i in range(len(sub)):
        totals[sub[i]] += length[i]
        counts[sub[i] + 1] += 1
    start = np.cumsum(counts)
    order = np.empty(len(sub), np.int64)
    fill = start.copy()
    for i in range(len(sub)):
        order[fill[sub[i]]] = i
        fill[sub[i]] += 1
    n = len(sub) + n_sub * n_z
    out = np.empty((5, n), np.int64)
    count = 0
    for s in range(n_sub):
        quota = (totals[s] + n_z - 1) // n_z
        z, room = 0, quota
        for k in range(start[s], start[s + 1]):
            i = order[k]
            first, left = begin[i], length[i]
            while left > 0:
                if room == 0:
                    z, room = z + 1, quota
                taken = min(left, room)
                out[0, count], out[1, count], out[2, count] = s * n_z + z, s, row[i]
                out[3, count], out[4, count] = first, taken
                count += 1
                first, left, room = first + taken, left - taken, room - taken
    return out[:, :count]


@jit()
def _shed(pieces, n_buckets, max_values, max_words, fixed):
    """Mark whole rows, shortest first, that make a bucket too full: bool[n_pieces].

    Also gives the values and words that remain in every bucket.
    """
    n = pieces.shape[1]
    leaves = np.zeros(n, np.bool_)
    values, words = np.zeros(n_buckets, np.int64), np.zeros(n_buckets, np.int64)
    first = np.full(n_buckets + 1, n, np.int64)
    for i in range(n - 1, -1, -1):
        first[pieces[0, i]] = i
    for i in range(n):
        b = pieces[0, i]
        values[b] += pieces[4, i]
        words[b] += pieces[4, i] + 2
    for b in range(n_buckets):
        if words[b] == 0:
            continue
        words[b] += fixed
        if values[b] <= max_values and words[b] <= max_words:
            continue
        end = first[b]
        while end < n and pieces[0, end] == b:
            end += 1
        order = np.argsort(pieces[4, first[b] : end])
        for k in order:
            if values[b] <= max_values and words[b] <= max_words:
                break
            i = first[b] + k
            leaves[i] = True
            values[b] -= pieces[4, i]
            words[b] -= pieces[4, i] + 2
        if values[b] == 0:
            words[b] = 0
    return leaves, values, words


@jit()
def _placed(spilled, values, words, has, n_y, n_z, max_values, max_words, fixed):
    """Find buckets for spilled pieces: near ones first, whole rows before parts of them.

    `has` marks (bucket, sub-group) pairs that have their entry. Gives pieces, and what is left.
    """
    n_buckets = len(values)
    out = np.empty((5, spilled.shape[1] * 4 + 16), np.int64)
    count = 0
    for stage in range(6):
        whole = stage % 2 == 0
        size = (n_z, n_y * n_z, n_buckets)[stage // 2]
        for i in range(spilled.shape[1]):
            base = spilled[0, i] // size * size
            for step in range(size):
                if spilled[4, i] == 0:
                    break
                b = base + (spilled[0, i] - base - step) % size
                entry = 0 if has[b, spilled[1, i]] else fixed
                room = min(max_values - values[b], max_words - words[b] - entry - 2)
                taken = (
                    spilled[4, i] if not whole else (spilled[4, i] if room >= spilled[4, i] else 0)
                )
                taken = min(taken, room)
                if taken <= 0:
                    continue
                if count == out.shape[1]:
                    grown = np.empty((5, 2 * count), np.int64)
                    grown[:, :count] = out
                    out = grown
                out[0, count], out[1, count], out[2, count] = b, spilled[1, i], spilled[2, i]
                out[3, count], out[4, count] = spilled[3, i], taken
                count += 1
                spilled[3, i] += taken
                spilled[4, i] -= taken
                values[b] += taken
                words[b] += taken + 2 + entry
                has[b, spilled[1, i]] = True
    return out[:, :count], spilled[4].sum()


def spread(
    row: Ints,
    column: Ints,
    tile: tuple[int, int],
    parts: tuple[int, int, int],
    limits: BucketLimits,
) -> tuple[PatternPieces, int]:
    """(pieces, non-zeros for which there was no room) of a pattern in the order of rows.

    `tile` are the rows and columns of a partition, `parts` their numbers and that of z.
    """
    n_x, n_y, n_z = parts
    n_buckets = n_x * n_y * n_z
    segments = _segments(row, column, tile[0], tile[1], n_y)
    pieces = _dealt(*segments, n_x * n_y, n_z)
    max_words = limits.n_words - 1  # one word ends the bucket
    leaves, values, words = _shed(pieces, n_buckets, limits.n_values, max_words, limits.n_fixed)
    if not leaves.any():
        return PatternPieces(*pieces), 0
    spilled, staying = pieces[:, leaves], pieces[:, ~leaves]
    has = np.zeros((n_buckets, n_x * n_y), np.bool_)
    has[staying[0], staying[1]] = True
    over = np.bincount(spilled[0], spilled[4], minlength=n_buckets)
    spilled = np.ascontiguousarray(spilled[:, np.argsort(-over[spilled[0]], kind="stable")])
    moved, n_left = _placed(
        spilled, values, words, has, n_y, n_z, limits.n_values, max_words, limits.n_fixed
    )
    joined = np.concatenate((staying, moved), axis=1)
    return PatternPieces(*joined[:, np.argsort(joined[0], kind="stable")]), int(n_left)
