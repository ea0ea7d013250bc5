"""Meta-information: a pattern as the 16-bit words that vertices read.

First come the *overflow words*: how far the farthest spilled piece is from its sub-group, as
endX, endY, endZ, then flags of the x distances that occur, two per word. Then a bucket for every
tile: entries of sub-groups, each with its workers' shares and its rows, longest first; a 0 ends it.

    element   id x y values next numZ rows-1 first workers | offset numZ offsetZ rows-1 list …
              [workers | offset list skip columns …] | row columns offsets… | …
    block     id x y values next rows-1 workers [| offset list skip columns …]
              | row columns-1 offsets… | …

`next` and `first` count words from the entry, `list` from the worker's.
"""

# Numba types what it compiles by itself, and has no objects to bundle arguments in.
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917

from typing import NamedTuple

import numpy as np
from numba import njit

from tremula.poplibs.popsparse.dynamic.plan import DynamicPlan
from tremula.poplibs.popsparse.dynamic.spread import Pieces
from tremula.poplibs.popsparse.dynamic.worker_split import split_between_workers
from tremula.poplibs.popsparse.errors import SparsityError

Ints = np.ndarray
GROUP_WORDS = {True: 9, False: 7}  # of elements, of blocks
WORKER_WORDS, GRAD_W_WORDS = 5, 4


class Encoded(NamedTuple):
    """All words, and where each value comes from: -1 where a bucket has none."""

    words: Ints  # uint16: overflow words, then the buckets
    source: Ints  # int32[n_buckets, n_values in blocks]


def fixed_words(plan: DynamicPlan, n_workers: int) -> int:
    """Words of a sub-group besides its rows, at most."""
    grad_w = plan.problem.with_grad_w
    if plan.problem.side > 1:
        return 7 + GRAD_W_WORDS * n_workers * grad_w
    return 9 + WORKER_WORDS * n_workers + (1 + GRAD_W_WORDS * n_workers) * grad_w


def _grids(z_grains: int, n_workers: int, z_grain: int) -> tuple[Ints, Ints]:
    """Shares of workers for few rows: (how many, their first row, rows, first column, columns)."""
    most = 2 * n_workers
    counts, parts = np.zeros(most + 1, np.int64), np.zeros((most + 1, n_workers, 4), np.int64)
    for n_rows in range(1, most + 1):
        result = sorted(split_between_workers(n_rows, z_grains, n_workers))
        counts[n_rows] = len(result)
        for w, (r0, r1, c0, c1) in enumerate(result):
            parts[n_rows, w] = r0, r1 - r0, c0 * z_grain, (c1 - c0) * z_grain
    return counts, parts


@njit(cache=True)
def _split_weights(lengths, n_workers, first, n_rows):
    """Runs of rows with about equal numbers of values; gives the number of workers."""
    total = lengths.sum()
    average = (total + n_workers - 1) // n_workers
    begin, running, used = 0, 0, 0
    for w in range(n_workers):
        end = begin
        while end < len(lengths) and (
            w == n_workers - 1 or running + lengths[end] <= (w + 1) * average
        ):
            running += lengths[end]
            end += 1
        if end > begin:
            first[used], n_rows[used] = begin, end - begin
            used += 1
        begin = end
    return used


@njit(cache=True)
def _shares(lengths, n_workers, tile_z, counts, parts, shares):
    """Fill shares[w] = first row, rows, first column, columns; gives the number of workers."""
    n_rows = len(lengths)
    if n_rows > 2 * n_workers:
        used = _split_weights(lengths, n_workers, shares[:, 0], shares[:, 1])
        shares[:used, 2], shares[:used, 3] = 0, tile_z
        return used
    used = counts[n_rows]
    shares[:used] = parts[n_rows, :used]
    return used


@njit(cache=True)
def _write_workers(entry, lists, row_at, shares, used):
    """The shares of workers of an element sub-group, behind its entry."""
    for w in range(used):
        at, first = 9 + 5 * w, shares[w, 0]
        entry[at], entry[at + 1], entry[at + 2] = (
            row_at[first] - 2 * first,
            shares[w, 3],
            shares[w, 2],
        )
        entry[at + 3], entry[at + 4] = shares[w, 1] - 1, lists + row_at[first] - at


@njit(cache=True)
def _write_grad_w(entry, at, lists, row_at, nnz, n_grad):
    """Equal shares of the values for the workers of their gradient."""
    share, r = (nnz + n_grad - 1) // n_grad, 0
    for w in range(n_grad):
        offset = min(w * share, nnz)
        while r < len(row_at) - 2 and row_at[r + 1] - 2 * (r + 1) <= offset:
            r += 1
        entry[at], entry[at + 1] = offset, lists + row_at[r] - at
        entry[at + 2] = offset - (row_at[r] - 2 * r)
        entry[at + 3] = min(share, nnz - offset)
        at += 4


@njit(cache=True)
def _write_rows(entry, place, chosen, row, begin, length, column, corner, step, is_element, source):
    """Rows of a sub-group, and where their values come from."""
    value = 0
    for i in chosen:
        entry[place] = row[i] - corner[0]
        entry[place + 1] = length[i] if is_element else length[i] - 1
        for j in range(length[i]):
            entry[place + 2 + j] = (column[begin[i] + j] - corner[1]) * step
            source[value] = begin[i] + j
            value += 1
        place += 2 + length[i]


@njit(cache=True)
def _bucket_order(sub_group, length, at, end, home):
    """The bucket's own sub-group first, then the others; rows from long to short."""
    key = np.empty(end - at, np.int64)
    for i in range(at, end):
        other = 0 if sub_group[i] == home else sub_group[i] + 1
        key[i - at] = other * (1 << 32) + (1 << 31) - length[i]
    return np.argsort(key, kind="mergesort") + at


@njit(cache=True)
def _encode(
    bucket, sub_group, row, begin, length, column, tile_x, tile_y, n_y, n_z, tile_z, size,
    n_workers, with_grad_w, is_element, counts, parts, words, source,
):  # fmt: skip
    """Write all buckets; gives the first that is too long, or -1."""
    n, at = len(bucket), 0
    shares = np.empty((n_workers, 4), np.int64)
    while at < n:
        b, end = bucket[at], at
        while end < n and bucket[end] == b:
            end += 1
        order = _bucket_order(sub_group, length, at, end, b // n_z)
        place, value, k = 0, 0, 0
        while k < len(order):
            s, last = sub_group[order[k]], k
            while last < len(order) and sub_group[order[last]] == s:
                last += 1
            chosen = order[k:last]
            lengths = length[chosen]
            row_at = np.zeros(len(chosen) + 1, np.int64)
            row_at[1:] = np.cumsum(lengths + 2)
            nnz, used = lengths.sum(), 0
            if is_element:
                used = _shares(lengths, n_workers, tile_z, counts, parts, shares)
            head = 9 + 5 * used if is_element else 7
            n_grad = min(nnz, n_workers) if with_grad_w else 0
            lists = head + 4 * n_grad + (1 if is_element and with_grad_w else 0)
            n_words = lists + row_at[-1]
            if place + n_words + 1 > words.shape[1] or value + nnz > source.shape[1]:
                return b
            entry = words[b, place:]
            entry[0], entry[1], entry[2] = s + 1, s // n_y, s % n_y
            entry[3], entry[4] = nnz, n_words
            if is_element:
                entry[5], entry[6], entry[7], entry[8] = tile_z, len(chosen) - 1, lists, used
                _write_workers(entry, lists, row_at, shares, used)
            else:
                entry[5], entry[6] = len(chosen) - 1, n_grad
            if with_grad_w:
                if is_element:
                    entry[head] = n_grad
                _write_grad_w(entry, lists - 4 * n_grad, lists, row_at, nnz, n_grad)
            corner = (s // n_y) * tile_x, (s % n_y) * tile_y
            step = tile_z * size if is_element else 1
            to = source[b, value:]
            _write_rows(
                entry, lists, chosen, row, begin, length, column, corner, step, is_element, to
            )
            place, value, k = place + n_words, value + nnz, last
        words[b, place] = 0
        at = end
    return -1


def encode(plan: DynamicPlan, pieces: Pieces, column: Ints, n_workers: int) -> Encoded:
    """The buckets of pieces; `column` are the non-zeros' columns of blocks, row by row."""
    p = plan.problem
    n_buckets = plan.n_tiles
    n_head = n_overflow_words(plan)
    words = np.zeros(n_head + n_buckets * plan.n_meta, np.uint16)
    words[:n_head] = overflow_words(plan, pieces)
    buckets = words[n_head:].reshape(n_buckets, plan.n_meta)
    source = np.full((n_buckets, plan.n_values // p.area), -1, np.int32)
    counts, parts = _grids(plan.tile_z // p.z_grain, n_workers, p.z_grain)
    too_long = _encode(
        *pieces, column, plan.tile_x, plan.tile_y, plan.y, plan.z, plan.tile_z, p.element.n_bytes,
        n_workers, p.with_grad_w, p.side == 1, counts, parts, buckets, source,
    )  # fmt: skip
    if too_long >= 0:
        raise SparsityError(
            f"Overflow in buckets: bucket {too_long} has more than {plan.n_meta} words.",
            hint="raise meta_info_bucket_oversize_proportion",
        )
    return Encoded(words, source)


@njit(cache=True)
def worker_loads(words, n_z, n_workers):  # noqa: ANN201
    """int64[buckets, workers, 3]: rows, values, columns of each worker of a bucket's sub-group.

    Of single elements; `words` are [buckets, words].
    """
    result = np.zeros((len(words), n_workers, 3), np.int64)
    for b in range(len(words)):
        entry = words[b]
        if entry[0] != b // n_z + 1:
            continue
        for w in range(entry[8]):
            at = 9 + 5 * w
            result[b, w, 0], result[b, w, 2] = entry[at + 3] + 1, entry[at + 1]
            place = at + entry[at + 4]
            for _ in range(entry[at + 3] + 1):
                result[b, w, 1] += entry[place + 1]
                place += 2 + entry[place + 1]
    return result


def overflow_words(plan: DynamicPlan, pieces: Pieces) -> Ints:
    """How far pieces are from their sub-groups, as the words that device programs read."""
    host = pieces.bucket // plan.z
    spilled = np.flatnonzero(host != pieces.sub_group)
    host, sub_group = host[spilled], pieces.sub_group[spilled]
    dx = (sub_group // plan.y - host // plan.y) % plan.x
    dy = (sub_group % plan.y - host % plan.y) % plan.y
    end_x = int(dx.max(initial=0)) + 1
    end_y = plan.y if end_x > 1 else int(dy.max(initial=0)) + 1
    flags = np.zeros(-(-plan.x // 2), np.uint16)
    for distance in np.unique(np.append(dx, 0)).tolist():
        flags[distance // 2] |= 1 << (distance % 2)
    return np.concatenate((np.array([end_x, end_y, plan.z], np.uint16), flags))


def n_overflow_words(plan: DynamicPlan) -> int:
    return 3 + -(-plan.x // 2)


def decode(plan: DynamicPlan, words: Ints) -> tuple[Ints, Ints, Ints]:
    """(row, column, place of the value) of every block that the buckets' words name."""
    p, result = plan.problem, []
    is_element = p.side == 1
    step = plan.tile_z * p.element.n_bytes if is_element else 1
    for number, bucket in enumerate(words.reshape(plan.n_tiles, plan.n_meta).astype(np.int64)):
        at, value = 0, number * (plan.n_values // p.area)
        while at < len(bucket) and bucket[at]:
            x, y, n_next = (int(bucket[at + i]) for i in (1, 2, 4))
            n_rows = int(bucket[at + (6 if is_element else 5)]) + 1
            place = _first_row(plan, bucket, at)
            if n_next == 0 or at + n_next >= len(bucket) or x >= plan.x or y >= plan.y:
                raise SparsityError(
                    f"Invalid meta-info: sub-group {bucket[at]} of bucket {number} is possibly "
                    "corrupt or was made by another plan.",
                    hint="give what a Partitioner of the same sizes and options made",
                )
            for _ in range(n_rows):
                n = int(bucket[place + 1]) + (not is_element)
                columns = bucket[place + 2 : place + 2 + n] // step + y * plan.tile_y
                rows = np.full(n, bucket[place] + x * plan.tile_x)
                result.append((rows, columns, np.arange(value, value + n)))
                value, place = value + n, place + 2 + n
            at += n_next
    if not result:
        return tuple(np.empty(0, np.int64) for _ in range(3))  # pyright: ignore[reportReturnType]
    return tuple(np.concatenate(c) for c in zip(*result, strict=True))  # pyright: ignore[reportReturnType]


def _first_row(plan: DynamicPlan, bucket: Ints, at: int) -> int:
    if plan.problem.side == 1:
        return at + int(bucket[at + 7])
    return at + 7 + GRAD_W_WORDS * int(bucket[at + 6])
