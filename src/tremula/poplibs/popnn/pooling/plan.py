"""How a pooling is spread over tiles: boxes of rows × columns, and their vertices' tables."""

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tremula.base.types import Type
from tremula.hardware import Chip
from tremula.poplar.tensors.runs import expand
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.popnn.pooling.geometry import (
    Axis,
    PoolingType,
    PoolParams,
    Shape,
    join_rows,
    row_shares,
)
from tremula.poplibs.poputil.memo import N_PLANS

# Published: supervisor cycles; worker slots, per row and per work item; then per vector of
# channels of an output and of a tap, forward and for the gradient.
LAUNCH_CYCLES, START_SLOTS, ROW_SLOTS, ITEM_SLOTS = 13, 40, 13, 20
OUT_SLOTS, TAP_SLOTS = 5, 3
GRADIENT_OUT_SLOTS, GRADIENT_TAP_SLOTS = 7, 5
FRAGMENT_CYCLES = 1  # derived: an instruction of the exchange for each piece of memory it moves


@dataclass(frozen=True, slots=True)
class PoolKey:
    """What a plan depends on; `batch` counts groups of channels too, `n_channels` are in one."""

    params: PoolParams  # complete
    field: Shape  # of the inputs
    batch: int
    n_channels: int
    n_side_by_side: int  # channels that are neighbours in memory: all of a group and maybe more
    is_backward: bool
    type: Type
    n_tiles: int
    chip: Chip

    def axes(self) -> list[Axis]:
        """The dimensions of the field, seen from where the pooling writes."""
        sizes = zip(self.field, self.params.out_field(self.field), strict=True)
        return [
            self.params.axis(d, n_in, n_out, is_backward=self.is_backward)
            for d, (n_in, n_out) in enumerate(sizes)
        ]


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Tile i writes rows × columns of dst. CSR columns `x_start` have n_tiles_used + 1 entries."""

    dst_start: np.ndarray  # dst rows of each tile
    dst_begin: np.ndarray  # element intervals of dst, a row each
    dst_end: np.ndarray
    src_start: np.ndarray  # src rows of each tile
    src_begin: np.ndarray
    src_end: np.ndarray
    join_start: np.ndarray  # of joined: n_rows + 1 offsets, then local src rows
    joined: np.ndarray
    n_dst_rows: np.ndarray
    taps_start: np.ndarray
    taps: np.ndarray  # (dst column, src column, n) each, local
    share_start: np.ndarray  # of shares: a weight per row, then per column, of windows
    shares: np.ndarray
    dst_stride: int
    src_stride: int

    @property
    def n_used(self) -> int:
        return len(self.n_dst_rows)


def pool_cycles(
    n_rows: np.ndarray, n_cols: np.ndarray, n_vectors: np.ndarray, n_joins: np.ndarray,
    n_taps: np.ndarray, dst_stride: np.ndarray, n_workers: int, *, is_gradient: bool,
) -> np.ndarray:  # fmt: skip
    """Tile cycles of a vertex: n_vectors per position, n_joins pairs of rows, n_taps per pair."""
    out_slots, tap_slots = (
        (GRADIENT_OUT_SLOTS, GRADIENT_TAP_SLOTS) if is_gradient else (OUT_SLOTS, TAP_SLOTS)
    )
    n_places = ceil_div(n_rows * n_cols, n_workers)
    n_tap_places = ceil_div(n_joins * n_taps * ceil_div(n_cols, dst_stride), n_workers)
    n_row_joins = ceil_div(n_joins, np.maximum(n_rows, 1))
    n_items = np.maximum(ceil_div(n_joins, n_workers), n_row_joins) * n_taps
    slots = START_SLOTS + ROW_SLOTS * ceil_div(n_rows, n_workers) + ITEM_SLOTS * n_items
    slots = slots + n_vectors * (out_slots * n_places + tap_slots * n_tap_places)
    return LAUNCH_CYCLES + n_workers * slots


@lru_cache(N_PLANS)
def plan_pool(key: PoolKey) -> PoolPlan:
    """The cheapest split into boxes, with its tables."""
    return _PoolPlanner(key).plan()


class Split(NamedTuple):
    """Into how many parts rows and columns are cut, and the expected cycles."""

    cycles: float
    n_row_parts: int
    n_col_parts: int


@cache
def choose_split(key: PoolKey) -> Split:
    """The split with the fewest cycles of compute and exchange."""
    *outer, inner = key.axes()
    n_rows = key.batch * math.prod(a.n_dst for a in outer)
    n_joins = key.batch * math.prod(a.n_pairs for a in outer)
    n_row_parts = _distinct_parts(n_rows, key.n_tiles)
    n_col_parts = np.minimum(inner.n_dst, np.maximum(1, key.n_tiles // n_row_parts))
    rows, cols = -(-n_rows // n_row_parts), -(-inner.n_dst // n_col_parts)
    joins = -(-rows * n_joins // max(n_rows, 1))
    n_vectors = -(-key.n_channels // key.chip.vector_width(key.type))
    compute = pool_cycles(
        rows, cols, np.asarray(n_vectors), joins, np.asarray(len(inner.taps)),
        np.asarray(inner.dst_stride), key.chip.n_workers,
        is_gradient=key.is_backward,
    )  # fmt: skip
    wide = cols * inner.src_stride // inner.dst_stride + key.params.kernel[-1]
    n_places = joins * np.minimum(wide, inner.n_src)
    n_fragments = joins if key.n_channels == key.n_side_by_side else n_places
    n_bytes = n_places * key.n_channels * key.type.n_bytes
    exchange = n_bytes / key.chip.exchange_bytes_per_cycle + n_fragments * FRAGMENT_CYCLES
    cycles = compute + exchange
    best = int(np.argmin(cycles))
    return Split(float(cycles[best]), int(n_row_parts[best]), int(n_col_parts[best]))


class _PoolPlanner:
    """Boxes are numbered row part by row part; `part` and `col_part` are those of each box."""

    def __init__(self, key: PoolKey):
        self.key = key
        *self.outer, self.inner = key.axes()
        self.n_rows = key.batch * math.prod(a.n_dst for a in self.outer)
        self.dst_row, self.src_row = join_rows(key.batch, self.outer)
        _, n_row_parts, n_col_parts = choose_split(key)
        self.row_cuts = np.arange(n_row_parts + 1) * self.n_rows // n_row_parts
        self.col_cuts = np.arange(n_col_parts + 1) * self.inner.n_dst // n_col_parts
        self.part, self.col_part = np.divmod(np.arange(n_row_parts * n_col_parts), n_col_parts)
        self.n_dst_rows = np.diff(self.row_cuts)[self.part]

    def plan(self) -> PoolPlan:
        taps_start, taps, src_low, src_high = self._taps()
        dst = self._dst_rows()
        needed_start, needed, local = self._needed_rows()
        src = self._src_rows(needed_start, needed, src_low, src_high)
        windows = self._windows(src, src_low, src_high)
        return PoolPlan(
            *dst, *src, *self._joined(local), self.n_dst_rows, taps_start, taps,
            *self._shares(*windows), self.inner.dst_stride, self.inner.src_stride,
        )  # fmt: skip

    def _dst_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        owner, within = expand(self.n_dst_rows)
        base = (self.row_cuts[self.part[owner]] + within) * self.inner.n_dst
        col = self.col_part[owner]
        n_channels = self.key.n_channels
        begin = (base + self.col_cuts[col]) * n_channels
        return _starts(self.n_dst_rows), begin, (base + self.col_cuts[col + 1]) * n_channels

    def _join_cuts(self) -> np.ndarray:
        return np.searchsorted(self.dst_row, self.row_cuts)

    def _needed_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Src rows of each row part (start, rows), and for every join the place among them."""
        cuts = self._join_cuts()
        part = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
        n_src = int(self.src_row.max(initial=0)) + 1
        result, local = np.unique(part * n_src + self.src_row, return_inverse=True)
        start = np.searchsorted(result, np.arange(len(cuts)) * n_src)
        return start, result % n_src, local - start[part]

    def _src_rows(
        self, start: np.ndarray, rows: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        counts = np.diff(start)[self.part]
        owner, within = expand(counts)
        base = rows[start[self.part[owner]] + within] * self.inner.n_src
        col = self.col_part[owner]
        n_channels = self.key.n_channels
        return _starts(counts), (base + low[col]) * n_channels, (base + high[col]) * n_channels

    def _taps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Taps of each box, and the src columns [low, high) of each column part."""
        result = [_clipped_taps(self.inner, int(a), int(b)) for a, b in pairwise(self.col_cuts)]
        low = np.array([t[:, 1].min(initial=self.inner.n_src) for t in result])
        reach = [t[:, 1] + (t[:, 2] - 1) * self.inner.src_stride + 1 for t in result]
        high = np.array([r.max(initial=0) for r in reach])
        low = np.minimum(low, high)
        local = [(t - [0, first, 0]).ravel() for t, first in zip(result, low, strict=True)]
        sizes = np.array([len(t) for t in local])
        start, table = _starts(sizes), np.concatenate(local)
        owner, within = expand(sizes[self.col_part])
        taps = table[start[self.col_part[owner]] + within]
        return _starts(sizes[self.col_part]), taps, low, high

    def _joined(self, local: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each box: where the joins of each row begin, n_rows + 1 numbers, then src rows."""
        cuts = self._join_cuts()
        n_joins = np.diff(cuts)[self.part]
        start = _starts(self.n_dst_rows + 1 + n_joins)
        table = np.empty(start[-1], np.int64)
        of_row = np.searchsorted(self.dst_row, np.arange(self.n_rows + 1))
        owner, within = expand(self.n_dst_rows + 1)
        row = self.row_cuts[self.part[owner]] + within
        table[start[owner] + within] = of_row[row] - cuts[self.part[owner]]
        owner, within = expand(n_joins)
        place = start[owner] + self.n_dst_rows[owner] + 1 + within
        table[place] = local[cuts[self.part[owner]] + within]
        return start, table

    def _windows(
        self, src: tuple[np.ndarray, np.ndarray, np.ndarray], low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Rows (counts, values) and columns (low, high) of the windows each box sees."""
        if not self.key.is_backward:
            owner, within = expand(self.n_dst_rows)
            rows = self.row_cuts[self.part[owner]] + within
            return (
                self.n_dst_rows,
                rows,
                self.col_cuts[self.col_part],
                self.col_cuts[self.col_part + 1],
            )
        row_size = max(1, self.inner.n_src * self.key.n_channels)
        return np.diff(src[0]), src[1] // row_size, low[self.col_part], high[self.col_part]

    def _shares(
        self, n_rows: np.ndarray, rows: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each box: the weight of each row of windows, then of each column."""
        is_average = self.key.params.kind is PoolingType.AVG
        by_row = row_shares(self.key.batch, self.outer, self.key.is_backward)
        by_col = self.inner.window_shares(self.key.is_backward)
        start = _starts(n_rows + high - low)
        table = np.ones(start[-1])
        if is_average:
            owner, within = expand(n_rows)
            table[start[owner] + within] = by_row[rows]
            owner, within = expand(high - low)
            table[start[owner] + n_rows[owner] + within] = by_col[low[owner] + within]
        return start, table


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(counts)))


def _distinct_parts(n: int, most: int) -> np.ndarray:
    """Numbers of parts worth trying: the smallest for each size of the largest part."""
    parts = np.arange(1, max(1, min(n, most)) + 1)
    _, first = np.unique(-(-n // parts), return_index=True)
    return parts[np.sort(first)]


def _clipped_taps(axis: Axis, low: int, high: int) -> np.ndarray:
    """int64[n, 3]: the axis' taps within dst columns [low, high), which count from low."""
    result = []
    for dst, src, n in axis.taps:
        begin = max(0, -((dst - low) // axis.dst_stride))
        end = min(n, -((dst - high) // axis.dst_stride))
        if end > begin:
            step = begin * axis.dst_stride
            result.append((dst + step - low, src + begin * axis.src_stride, end - begin))
    return np.array(result, np.int64).reshape(-1, 3)
