"""Ranges of a timeline pooled into rows: what chips and tiles did in each.

Three sources, from fine to coarse: entries, walked again; the overview, which says how often each
step ran in a bucket; and stored rows of tiles, for a first look at everything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tremula.compiler.report.phases import PHASES

if TYPE_CHECKING:
    from tremula.vision.report.matrices import Matrix
    from tremula.vision.report.timeline.timeline import TimelineEntries

Ints = np.ndarray


class Timed(Protocol):
    """What a window needs of a report's reader, which also reads windows."""

    @property
    def n_steps(self) -> int: ...
    @property
    def n_ipus(self) -> int: ...
    @property
    def n_tiles(self) -> int: ...
    @property
    def n_entries(self) -> int: ...
    @property
    def overview_pool(self) -> int: ...
    @property
    def stored_pool(self) -> int: ...
    @property
    def phases_of_steps(self) -> Ints: ...

    def column(self, name: str) -> Ints: ...
    def matrix(self, name: str) -> "Matrix": ...
    def entries(self, first: int, last: int) -> "TimelineEntries": ...


_STEPS_AT_ONCE = 64  # a block of a matrix


@dataclass(frozen=True, slots=True)
class Pooled:
    """Row i covers entries edges[i] … edges[i+1]-1; what ran in it, and what chips did."""

    edges: Ints  # int64[n + 1]
    begin: Ints  # int64[n, n_chips]: start of the first entry
    end: Ints  # of the last
    phases: Ints  # int64[n, n_chips, 5]
    # How often steps ran: row i has start[i] … start[i + 1] - 1.
    start: Ints
    step: Ints
    times: Ints


def pooled(reader: Timed, edges: Ints) -> Pooled:
    """From whole buckets of the overview where edges allow, else from entries."""
    pool, n = reader.overview_pool, reader.n_entries
    is_whole = bool(((edges % pool == 0) | (edges == n)).all())
    return _of_buckets(reader, edges, pool) if is_whole else _of_entries(reader, edges)


def _of_buckets(reader: Timed, edges: Ints, pool: int) -> Pooled:
    bounds = -(-edges // pool)
    first, last, start = bounds[:-1], bounds[1:], reader.column("overview.start")
    whole = slice(bounds[0], bounds[-1])
    phases = reader.column("overview.phases")[whole]
    mine = slice(start[bounds[0]], start[bounds[-1]])
    return Pooled(
        edges,
        reader.column("overview.begin")[first],
        reader.column("overview.end")[last - 1],
        np.add.reduceat(phases, first - bounds[0], axis=0),
        start[bounds] - start[bounds[0]],
        reader.column("overview.step")[mine],
        reader.column("overview.times")[mine],
    )


def _of_entries(reader: Timed, edges: Ints) -> Pooled:
    every = reader.entries(int(edges[0]), int(edges[-1]))
    at, n_chips = edges[:-1] - edges[0], reader.n_ipus
    took = np.add.reduceat(every.end - every.start, at, axis=0)
    of_step = reader.phases_of_steps
    phases = np.zeros((len(at), n_chips, len(PHASES)), np.int64)
    steps, times, counts = [], [], []
    for row, (first, last) in enumerate(zip(at, edges[1:] - edges[0], strict=True)):
        often = np.bincount(every.step[first:last], every.times[first:last])
        step = np.flatnonzero(often)
        often = often[step].astype(np.int64)
        phases[row] = np.tensordot(often, of_step[step], axes=1)
        steps.append(step)
        times.append(often)
        counts.append(len(step))
    # What steps took that depend on data is the rest of their time.
    phases[:, :, 0] += took - phases.sum(axis=2)
    return Pooled(
        edges, every.start[at], every.end[edges[1:] - edges[0] - 1], phases,
        np.cumsum([0, *counts]), np.concatenate(steps), np.concatenate(times),
    )  # fmt: skip


def tile_rows(reader: Timed, name: str, rows: Pooled) -> Ints:
    """int64[n, n_tiles]: compute or exchange of tiles in each row, all executions together."""
    result = _stored(reader, name, rows.edges)
    if result is not None:
        return result
    return summed_rows(rows, reader.matrix(name).rows, reader.n_steps, reader.n_tiles)


def summed_rows(
    rows: Pooled, rows_of: Callable[[int, int], Ints], n_steps: int, n_tiles: int
) -> Ints:
    """int64[n, n_tiles]: sums of steps' rows as often as they ran; `rows_of(first, last)`."""
    n = len(rows.edges) - 1
    result = np.zeros((n, n_tiles), np.int64)
    row = np.repeat(np.arange(n), np.diff(rows.start))
    order = np.argsort(rows.step, kind="stable")
    step, row, times = rows.step[order], row[order], rows.times[order]
    block = step // _STEPS_AT_ONCE
    for first, last in _runs_of(block):
        steps = step[first:last]
        begin = int(block[first]) * _STEPS_AT_ONCE
        cells = rows_of(begin, min(n_steps, begin + _STEPS_AT_ONCE))
        mine, at = np.unique(row[first:last], return_inverse=True)
        often = np.zeros((len(mine), len(cells)))
        np.add.at(often, (at, steps - begin), times[first:last])
        result[mine] += (often @ cells.astype(np.float64)).astype(np.int64)
    return result


def _runs_of(values: Ints) -> list[tuple[int, int]]:
    """(first, last + 1) of runs of equal values."""
    cuts = np.flatnonzero(np.diff(values)) + 1
    bounds = [0, *cuts.tolist(), len(values)]
    return [(a, b) for a, b in pairwise(bounds) if b > a]


def _stored(reader: Timed, name: str, edges: Ints) -> Ints | None:
    """Sums of stored rows, if the edges lie between such rows."""
    pool, n = reader.stored_pool, reader.n_entries
    if pool == 1 or not ((edges % pool == 0) | (edges == n)).all():
        return None
    bounds = -(-edges // pool)
    rows = reader.matrix(f"trace_{name}").rows(int(bounds[0]), int(bounds[-1]))
    return np.add.reduceat(rows, bounds[:-1] - bounds[0], axis=0)
