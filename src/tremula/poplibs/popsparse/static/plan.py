"""How a static sparse product is split over tiles: columns of the dense operand, bands of k.

The dense operand's columns are cut into intervals (`n_splits`) and the matrix's columns into bands
of about equally many non-zeros (`n_bands`). Every pair of an interval and a band has a run of
tiles, as many as its share of the work; the band's non-zeros are dealt to them row by row. Tiles of
a band need few rows of the dense operand but give partial results of many rows: a search weighs the
two with the cost model, over all pairs (n_splits, n_bands). This is PopLibs' search, and its
estimate of a pattern's rows and columns on a tile from its density.
"""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import ceil, sqrt

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, Type
from tremula.hardware import Chip
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.static.costs import (
    planned_reduce_cycles,
    vertex_cycles,
    zeroing_cycles,
)

Ints = np.ndarray
MAX_SPLITS, MAX_BANDS = 32, 128
TILE_GRAIN = 2  # tiles that share an exchange bus
MAX_OFFSET = 65535  # of the words of a work list
RARE = 0.1  # rows and columns with less than this share of the mean do not count in the estimate


def n_grain(element: Type) -> int:
    """Columns of the dense operand come in multiples of this."""
    return 2 if element is FLOAT else 4


@dataclass(frozen=True, slots=True)
class StaticProblem:
    """[m, k] sparse by [k, n] dense on some tiles; `counts` are blocks per row and per column."""

    n_rows: int  # in blocks
    n_inner: int  # in blocks
    n: int
    side: int
    element: Type
    n_tiles: int
    row_counts: bytes
    column_counts: bytes

    @property
    def grain(self) -> int:
        return n_grain(self.element)

    @property
    def n_padded(self) -> int:
        return -(-self.n // self.grain) * self.grain

    def counts(self, which: str) -> Ints:
        return np.frombuffer(getattr(self, f"{which}_counts"), np.int64)


@dataclass(frozen=True, slots=True)
class StaticPlan:
    """Where each interval of columns and each band goes."""

    cycles: int
    n_bytes: int  # of temporary memory on the fullest tile
    n_splits: int
    n_bands: int
    n_cuts: tuple[int, ...]  # of the dense operand's columns
    tile_cuts: tuple[int, ...]  # tiles of each interval
    column_order: tuple[int, ...]  # columns of blocks, in the order the bands take them
    band_cuts: tuple[int, ...]  # of that order
    band_tiles: tuple[tuple[int, ...], ...]  # [interval][band]: how many tiles


def n_intervals(n: int, grain: int, n_splits: int) -> list[int]:
    """Cuts of n columns into at most n_splits intervals of whole grains."""
    n_grains = -(-n // grain)
    size = -(-n_grains // n_splits) * grain
    return [*range(0, n, size), n]


def tiles_of_intervals(cuts: list[int], n_tiles: int, n_splits: int) -> list[int]:
    """Cuts of the tiles: each interval's share, in grains; the last has the rest."""
    n_grains, total = n_tiles // TILE_GRAIN, cuts[-1]
    result = [0]
    for begin, end in pairwise(cuts[:-1]):
        share = max(ceil(n_grains * (end - begin) / (1 + total)) - 1, ceil(n_grains / n_splits))
        result.append(min(result[-1] + share * TILE_GRAIN, n_tiles))
    return [*result, n_tiles]


def band_cuts(counts: Ints, n_bands: int) -> list[int]:
    """Cuts of the columns into bands: each is full with its share of the non-zeros."""
    share = max(-(-int(counts.sum()) // n_bands), 1)
    ends = np.cumsum(counts)
    cuts, before = [0], 0
    while cuts[-1] < len(counts):
        end = int(np.searchsorted(ends, before + share)) + 1
        end = min(end, len(counts))
        cuts.append(end)
        before = int(ends[end - 1])
    return cuts


def tiles_of_bands(n_values: Ints, n_tiles: int) -> list[int]:
    """Tiles of each band, by its share of the non-zeros; the last has the rest."""
    total, result, left = int(n_values.sum()), [], n_tiles
    for number, n_band in enumerate(n_values[:-1].tolist()):
        share = n_band * n_tiles // max(total, 1) or TILE_GRAIN
        useful = -(-n_band // -(-max(n_band, 1) // share)) if n_band else TILE_GRAIN
        useful = -(-useful // TILE_GRAIN) * TILE_GRAIN
        share = min(share, useful) // TILE_GRAIN * TILE_GRAIN or TILE_GRAIN
        share = min(share, left - TILE_GRAIN * (len(n_values) - 1 - number))
        result.append(max(share, 1))
        left -= result[-1]
    return [*result, left]


def _kept(counts: Ints, n_values: int) -> tuple[Ints, Ints]:
    """(rows or columns that count in the estimate, those with few non-zeros)."""
    is_rare = counts <= RARE * n_values / max(len(counts), 1)
    return np.flatnonzero(~is_rare), np.flatnonzero(is_rare)


@dataclass(frozen=True, slots=True)
class _Estimate:
    """One candidate's cycles and bytes on its busiest tiles."""

    cycles: int
    n_bytes: int


def _deviation(share: float, count: float) -> int:
    return ceil(sqrt(max(share * (1 - share) * count, 0.0)))


@dataclass(frozen=True, slots=True)
class _StaticSearch:
    """What all candidates share: sizes that count in the estimate, and the density of those."""

    problem: StaticProblem
    chip: Chip
    n_values: int  # blocks
    n_rows: int
    n_columns: int

    @property
    def density(self) -> float:
        return min(self.n_values / (self.n_rows * self.n_columns), 1.0)

    def estimate(
        self, n: int, n_bands: int, n_band_values: int, n_tiles: int, n_band_columns: int,
        n_splits: int,
    ) -> _Estimate:  # fmt: skip
        """A tile of a band with `n_band_values` blocks on `n_tiles` tiles, and n columns."""
        p, s, b = self.problem, self.problem.element.n_bytes, self.problem.side
        rows = -(-self.n_rows // n_tiles)
        columns = n_band_columns
        if rows == 1:
            columns = min(ceil(n_band_values / self.density), self.n_columns)
        each = -(-n_band_values // n_tiles)
        row_share = 1 - (1 - self.density) ** columns
        n_rows = min(rows, ceil(row_share * rows + _deviation(row_share, rows)))
        column_share = 1 - (1 - self.density) ** rows
        n_columns = min(columns, ceil(column_share * columns + _deviation(column_share, columns)))
        n_rows, n_columns = max(n_rows, 1), max(n_columns, 1)
        dense_bytes = n * n_columns * b * s
        values_bytes = each * b * b * s if n_splits > 1 else 0
        rate = self.chip.exchange_bytes_per_cycle
        # Tiles of a bus receive the dense operand together.
        shared_rate = rate * self.chip.n_tiles_per_exchange_bus
        gathered = ceil(ceil(dense_bytes / shared_rate) * columns / n_columns)
        exchanged = gathered + ceil(values_bytes / rate)
        compute = int(vertex_cycles(n_rows, each, n, b, p.element, self.chip))
        out_bytes = n_rows * n * s * b
        compute += int(zeroing_cycles(out_bytes, b, p.element, self.chip))
        depth = ceil(
            (row_share * n_bands + _deviation(row_share, n_bands)) * n_band_columns / columns
        )
        depth = max(depth, 1)
        part_bytes = ceil(out_bytes * (depth - 1) / depth)
        reduced = ceil(part_bytes / rate)
        if depth > 1:
            share = ceil(out_bytes / s / depth)
            reduced += int(planned_reduce_cycles(share, depth, p.element, self.chip.n_workers))
        moved = ceil(p.n_rows * b * p.n_padded * s / p.n_tiles)
        n_bytes = max(dense_bytes + values_bytes + out_bytes, part_bytes + out_bytes)
        return _Estimate(exchanged + compute + reduced + moved, n_bytes)

    def cost(self, n_splits: int, n_cuts: list[int], bands: "_Bands") -> _Estimate | None:
        """The slowest tile of a candidate; None if its offsets do not fit a word."""
        p = self.problem
        tile_cuts = tiles_of_intervals(n_cuts, p.n_tiles, n_splits)
        pairs = {
            (n_cuts[i + 1] - n_cuts[i], tile_cuts[i + 1] - tile_cuts[i])
            for i in range(len(n_cuts) - 1)
        }
        units = 8 * p.side if p.side > 1 else 1  # of the offsets of dense rows
        if bands.widest * p.side * n_cuts[1] * p.element.n_bytes > MAX_OFFSET * units:
            return None
        result = []
        for n, n_tiles in pairs:
            if n_tiles < TILE_GRAIN * len(bands.n_values):
                return None
            tiles = np.array(bands.tiles(n_tiles))
            at = int(np.argmax(-(-bands.n_values // tiles)))
            band = int(bands.n_values[at]), int(tiles[at]), int(bands.widths[at])
            result.append(self.estimate(n, len(tiles), *band, n_splits))
        return _Estimate(max(e.cycles for e in result), max(e.n_bytes for e in result))


@dataclass(frozen=True)
class _Bands:
    """Bands of one candidate number of them."""

    cuts: list[int]
    n_values: Ints
    widths: Ints

    @classmethod
    def of(cls, counts: Ints, n_bands: int) -> "_Bands":
        cuts = band_cuts(counts, n_bands)
        ends = np.concatenate(([0], np.cumsum(counts)))
        return cls(cuts, np.diff(ends[cuts]), np.diff(cuts))

    @property
    def widest(self) -> int:
        return int(self.widths.max())

    def tiles(self, n_tiles: int) -> list[int]:
        return tiles_of_bands(self.n_values, n_tiles)


@cache
def plan_static(
    problem: StaticProblem, chip: Chip, proportion: float, n_bands: int = 0, n_splits: int = 0
) -> StaticPlan:
    """The cheapest split whose temporary memory is within a proportion of a tile's.

    `n_bands` and `n_splits` fix the number of bands and of intervals; 0 searches.
    """
    columns = problem.counts("column")
    n_values = int(columns.sum())
    if not n_values:
        order = np.arange(problem.n_inner)
        return _plan_of(
            problem, _Estimate(0, 0), (1, 1), [0, problem.n_padded], _Bands.of(columns, 1), order
        )
    frequent, rare = _kept(columns, n_values)
    order = np.concatenate((frequent, rare))
    kept_rows = _kept(problem.counts("row"), n_values)[0]
    search = _StaticSearch(problem, chip, n_values, max(len(kept_rows), 1), max(len(frequent), 1))
    grain = 1 if problem.side == 1 else problem.grain
    most_bands = min(MAX_BANDS, -(-max(len(frequent), 1) // grain))
    most_splits = min(MAX_SPLITS, problem.n_padded // problem.grain)
    limit = proportion * chip.n_bytes_per_tile
    best: tuple[int, int, int] | None = None
    chosen = None
    all_bands = {
        k: _Bands.of(columns[order], k)
        for k in ([n_bands] if n_bands else range(1, most_bands + 1))
    }
    for splits in [n_splits] if n_splits else range(1, most_splits + 1):
        n_cuts = n_intervals(problem.n_padded, problem.grain, splits)
        for k, bands in all_bands.items():
            if splits * k > max(problem.n_tiles // TILE_GRAIN, 1):
                break
            result = search.cost(splits, n_cuts, bands)
            if result is None or result.n_bytes > limit:
                continue
            if best is None or result.cycles < best[0]:
                best, chosen = (result.cycles, splits, k), (result, n_cuts, bands)
    if best is None or chosen is None:
        raise SparsityError(
            f"Could not find valid partition: a product of [{problem.n_rows * problem.side}, "
            f"{problem.n_inner * problem.side}] with {n_values} blocks of {problem.side} and "
            f"[{problem.n_inner * problem.side}, {problem.n}] does not fit {problem.n_tiles} tiles "
            f"at {proportion:.0%} of their memory.",
            source=user_source(),
            hint="raise available_memory_proportion, or take fewer columns at a time",
        )
    return _plan_of(problem, chosen[0], best[1:], chosen[1], chosen[2], order)


def _plan_of(
    problem: StaticProblem, cost: _Estimate, splits: tuple[int, int], n_cuts: list[int],
    bands: _Bands, order: Ints,
) -> StaticPlan:  # fmt: skip
    tile_cuts = tiles_of_intervals(n_cuts, problem.n_tiles, splits[0])
    return StaticPlan(
        cost.cycles, cost.n_bytes, *splits, tuple(n_cuts), tuple(tile_cuts), tuple(order.tolist()),
        tuple(bands.cuts), tuple(tuple(bands.tiles(int(t))) for t in np.diff(tile_cuts)),
    )  # fmt: skip
