"""A timeline in at most 1,024 buckets of entries: when, which phases, and how often which step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tremula.vision.report.timeline.timeline import Timeline

Ints = np.ndarray

MOST_BUCKETS = 1_024
# Buckets that are stored for all tiles, at most: a screen's first look.
MOST_STORED = 128
_STEPS_AT_ONCE, _ROWS_PER_BLOCK = 64, 64


@dataclass(frozen=True, slots=True)
class Overview:
    """Bucket i holds entries i × pool and on, a power of two of them."""

    pool: int
    begin: Ints  # int64[n_buckets, n_chips]
    end: Ints
    phases: Ints  # int64[n_buckets, n_chips, 5]
    # How often steps ran in each bucket: bucket i has rows start[i] … start[i + 1] - 1.
    start: Ints
    step: Ints
    times: Ints


def counted_steps(step: Ints, times: Ints) -> tuple[Ints, Ints]:
    """Steps that ran, in order of their numbers, and how often."""
    often = np.bincount(step, times)
    result = np.flatnonzero(often)
    return result, often[result].astype(np.int64)


def pool_of(n_entries: int) -> int:
    """The least power of two that makes few enough buckets."""
    pool = 1
    while -(-n_entries // pool) > MOST_BUCKETS:
        pool *= 2
    return pool


def overview_of(timeline: Timeline, phases: Ints) -> Overview:
    """One pass over all entries; `phases` int64[n_steps, n_chips, 5] are those of one execution."""
    pool, n_chips = pool_of(timeline.n_entries), timeline.n_chips
    n_buckets = -(-timeline.n_entries // pool)
    begin, end = np.zeros((2, n_buckets, n_chips), np.int64)
    result = np.zeros((n_buckets, n_chips, phases.shape[2]), np.int64)
    counted, steps, times = [], [], []
    for number in range(n_buckets):
        entries = timeline.entries(number * pool, (number + 1) * pool)
        begin[number], end[number] = entries.start[0], entries.end[-1]
        step, often = counted_steps(entries.step, entries.times)
        result[number] = np.tensordot(often, phases[step], axes=1)
        # What steps took that depend on data: their durations, less the other phases.
        took = (entries.end - entries.start).sum(axis=0)
        result[number, :, 0] += took - result[number].sum(axis=1)
        steps.append(step)
        times.append(often)
        counted.append(len(step))
    nothing = np.zeros(0, np.int64)
    return Overview(
        pool, begin, end, result, np.cumsum([0, *counted]),
        np.concatenate([nothing, *steps]), np.concatenate([nothing, *times]),
    )  # fmt: skip


def stored_pool(n_buckets: int) -> int:
    """How many buckets a stored row pools."""
    pool = 1
    while -(-n_buckets // pool) > MOST_STORED:
        pool *= 2
    return pool


def pooled_rows(
    overview: Overview, rows_of: Callable[[Ints], Ints], n_tiles: int
) -> Iterator[Ints]:
    """Blocks of int64[64, n_tiles]: sums over all executions, a row for each stored pool."""
    n_buckets = len(overview.begin)
    pool = stored_pool(n_buckets)
    bounds = [*range(0, n_buckets, pool), n_buckets]
    pending: list[Ints] = []
    for first, last in pairwise(bounds):
        mine = slice(overview.start[first], overview.start[last])
        pending.append(weighted_rows(overview.step[mine], overview.times[mine], rows_of, n_tiles))
        if len(pending) == _ROWS_PER_BLOCK:
            yield np.stack(pending)
            pending = []
    if pending:
        yield np.stack(pending)


def weighted_rows(step: Ints, times: Ints, rows_of: Callable[[Ints], Ints], n_tiles: int) -> Ints:
    """int64[n_tiles]: the sum of steps' rows, each as often as it ran."""
    steps, often = counted_steps(step, times)
    total = np.zeros(n_tiles, np.int64)
    for first in range(0, len(steps), _STEPS_AT_ONCE):
        part = slice(first, first + _STEPS_AT_ONCE)
        total += often[part] @ rows_of(steps[part])
    return total
