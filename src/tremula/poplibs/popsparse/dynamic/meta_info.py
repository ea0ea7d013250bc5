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

# Numba types what it compiles by itself; small patterns are encoded in Python.
# ruff: noqa: ANN001, ANN202

from functools import partial
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from tremula.codelets.native.stored_code import jit
from tremula.column_loops.sweep import NumbaSweep
from tremula.poplibs.popsparse.dynamic.plan import DynamicPlan
from tremula.poplibs.popsparse.dynamic.spread import PatternPieces
from tremula.poplibs.popsparse.dynamic.worker_split import split_between_workers
from tremula.poplibs.popsparse.errors import SparsityError

Ints = np.ndarray
GROUP_WORDS = {True: 9, False: 7}  # of elements, of blocks
WORKER_WORDS, GRAD_W_WORDS = 5, 4


class SubGroupForm(NamedTuple):
    """What all sub-groups of a plan have in common, for compiled code."""

    tile_x: int
    tile_y: int
    n_y: int
    n_z: int
    tile_z: int
    column_step: int  # of offsets: bytes of a dense row of elements; blocks count in blocks
    n_workers: int
    with_grad_w: bool
    is_element: bool
    n_parts: Ints  # how many workers share a grid of few rows, by its number of rows
    parts: Ints  # int64[n_rows, worker, 4]: first row, rows, first column, columns of a share


class PatternRows(NamedTuple):
    """The pieces of a pattern as columns, and the columns of their blocks."""

    bucket: Ints
    sub_group: Ints
    row: Ints
    begin: Ints
    length: Ints
    column: Ints


class SubGroup(NamedTuple):
    """One sub-group of a bucket: its pieces, and where its lists begin."""

    number: int
    chosen: Ints  # the pieces, longest first
    row_at: Ints  # words before each row of its lists, and of all
    n_values: int
    n_workers: int  # that share it; 0 for blocks
    n_grad: int  # workers of the gradient of its values
    lists: int  # words before its lists


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


@register_jitable
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


@register_jitable
def _shares(lengths, form, shares):
    """Fill shares[w] = first row, rows, first column, columns; gives the number of workers."""
    n_rows = len(lengths)
    if n_rows > 2 * form.n_workers:
        used = _split_weights(lengths, form.n_workers, shares[:, 0], shares[:, 1])
        shares[:used, 2], shares[:used, 3] = 0, form.tile_z
        return used
    used = form.n_parts[n_rows]
    shares[:used] = form.parts[n_rows, :used]
    return used


@register_jitable
def _write_workers(entry, group, shares):
    """The shares of workers of an element sub-group, after its entry."""
    for w in range(group.n_workers):
        at, first = 9 + 5 * w, shares[w, 0]
        row_at = group.row_at[first]
        entry[at], entry[at + 1], entry[at + 2] = row_at - 2 * first, shares[w, 3], shares[w, 2]
        entry[at + 3], entry[at + 4] = shares[w, 1] - 1, group.lists + row_at - at


@register_jitable
def _write_grad_w(entry, group):
    """Equal shares of the values for the workers of their gradient."""
    nnz, row_at = group.n_values, group.row_at
    share, r = (nnz + group.n_grad - 1) // group.n_grad, 0
    at = group.lists - 4 * group.n_grad
    for w in range(group.n_grad):
        offset = min(w * share, nnz)
        while r < len(row_at) - 2 and row_at[r + 1] - 2 * (r + 1) <= offset:
            r += 1
        entry[at], entry[at + 1] = offset, group.lists + row_at[r] - at
        entry[at + 2] = offset - (row_at[r] - 2 * r)
        entry[at + 3] = min(share, nnz - offset)
        at += 4


@register_jitable
def _write_rows(entry, group, rows, form, source):
    """Rows of a sub-group, and where their values come from."""
    x, y = group.number // form.n_y * form.tile_x, group.number % form.n_y * form.tile_y
    at, value = group.lists, 0
    for i in group.chosen:
        length, begin = rows.length[i], rows.begin[i]
        entry[at] = rows.row[i] - x
        entry[at + 1] = length if form.is_element else length - 1
        for j in range(length):
            entry[at + 2 + j] = (rows.column[begin + j] - y) * form.column_step
            source[value] = begin + j
            value += 1
        at += 2 + length


@register_jitable
def _bucket_order(rows, begin, end, home):
    """The bucket's own sub-group first, then the others; rows from long to short."""
    key = np.empty(end - begin, np.int64)
    for i in range(begin, end):
        other = 0 if rows.sub_group[i] == home else rows.sub_group[i] + 1
        key[i - begin] = other * (1 << 32) + (1 << 31) - rows.length[i]
    return np.argsort(key, kind="mergesort") + begin


@register_jitable
def _sub_group(chosen, rows, form, shares):
    """The sub-group of some pieces; fills the shares of its workers."""
    lengths = rows.length[chosen]
    row_at = np.zeros(len(chosen) + 1, np.int64)
    row_at[1:] = np.cumsum(lengths + 2)
    n_values, n_workers, lists = lengths.sum(), 0, 7
    if form.is_element:
        n_workers = _shares(lengths, form, shares)
        lists = 9 + 5 * n_workers
    n_grad = min(n_values, form.n_workers) if form.with_grad_w else 0
    lists += 4 * n_grad + (1 if form.is_element and form.with_grad_w else 0)
    number = rows.sub_group[chosen[0]]
    return SubGroup(number, chosen, row_at, n_values, n_workers, n_grad, lists)


@register_jitable
def _write_sub_group(entry, source, group, rows, form, shares):
    """All words of a sub-group, and where its values come from."""
    entry[0], entry[1] = group.number + 1, group.number // form.n_y
    entry[2] = group.number % form.n_y
    entry[3], entry[4] = group.n_values, group.lists + group.row_at[-1]
    if form.is_element:
        entry[5], entry[6] = form.tile_z, len(group.chosen) - 1
        entry[7], entry[8] = group.lists, group.n_workers
        _write_workers(entry, group, shares)
        if form.with_grad_w:
            entry[9 + 5 * group.n_workers] = group.n_grad
    else:
        entry[5], entry[6] = len(group.chosen) - 1, group.n_grad
    if form.with_grad_w:
        _write_grad_w(entry, group)
    _write_rows(entry, group, rows, form, source)


@register_jitable
def _write_bucket(order, rows, form, words, source):
    """One bucket of pieces in their order; whether it is long enough for them."""
    shares = np.empty((form.n_workers, 4), np.int64)
    at, value, first = 0, 0, 0
    while first < len(order):
        last = first
        while last < len(order) and rows.sub_group[order[last]] == rows.sub_group[order[first]]:
            last += 1
        group = _sub_group(order[first:last], rows, form, shares)
        n_words = group.lists + group.row_at[-1]
        if at + n_words + 1 > len(words) or value + group.n_values > len(source):
            return False
        _write_sub_group(words[at:], source[value:], group, rows, form, shares)
        at, value, first = at + n_words, value + group.n_values, last
    words[at] = 0
    return True


def _n_turns(rows, _form, words, _source):
    """About one for each value, piece and bucket."""
    return len(rows.column) + 10 * len(rows.bucket) + len(words)


@partial(NumbaSweep, n_turns=_n_turns)
def _encode(rows, form, words, source):
    """Write all buckets; gives the first that is too long, or -1."""
    begin = 0
    while begin < len(rows.bucket):
        b, end = rows.bucket[begin], begin
        while end < len(rows.bucket) and rows.bucket[end] == b:
            end += 1
        order = _bucket_order(rows, begin, end, b // form.n_z)
        if not _write_bucket(order, rows, form, words[b], source[b]):
            return b
        begin = end
    return -1


def encode(plan: DynamicPlan, pieces: PatternPieces, column: Ints, n_workers: int) -> Encoded:
    """The buckets of pieces; `column` are the non-zeros' columns of blocks, row by row."""
    p = plan.problem
    n_buckets = plan.n_tiles
    n_head = n_overflow_words(plan)
    words = np.zeros(n_head + n_buckets * plan.n_meta, np.uint16)
    words[:n_head] = overflow_words(plan, pieces)
    buckets = words[n_head:].reshape(n_buckets, plan.n_meta)
    source = np.full((n_buckets, plan.n_values // p.area), -1, np.int32)
    too_long = _encode(PatternRows(*pieces, column), _form(plan, n_workers), buckets, source)
    if too_long >= 0:
        raise SparsityError(
            f"Overflow in buckets: bucket {too_long} has more than {plan.n_meta} words.",
            hint="raise meta_info_bucket_oversize_proportion",
        )
    return Encoded(words, source)


def _form(plan: DynamicPlan, n_workers: int) -> SubGroupForm:
    p = plan.problem
    n_parts, parts = _grids(plan.tile_z // p.z_grain, n_workers, p.z_grain)
    is_element = p.side == 1
    return SubGroupForm(
        tile_x=plan.tile_x, tile_y=plan.tile_y, n_y=plan.y, n_z=plan.z, tile_z=plan.tile_z,
        column_step=plan.tile_z * p.element.n_bytes if is_element else 1,
        n_workers=n_workers, with_grad_w=p.with_grad_w, is_element=is_element,
        n_parts=n_parts, parts=parts,
    )  # fmt: skip


@jit()
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
            row = at + entry[at + 4]
            for _ in range(entry[at + 3] + 1):
                result[b, w, 1] += entry[row + 1]
                row += 2 + entry[row + 1]
    return result


def overflow_words(plan: DynamicPlan, pieces: PatternPieces) -> Ints:
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
    """(row, column, index of the value) of every block that the buckets' words name."""
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
