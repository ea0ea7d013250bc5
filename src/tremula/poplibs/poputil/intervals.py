"""Intervals of flattened tensors: cut into parts of whole grains, joined, counted, put in order."""

from collections.abc import Iterable, Sequence

import numpy as np

from tremula.poplar.target import Target
from tremula.poplar.tensors.runs import expand
from tremula.poplar.tensors.tensor import Interval

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]


def split_regions(
    regions: Sequence[Interval],
    grain: int,
    max_partitions: int,
    min_per_partition: int = 0,
    max_per_partition: int | None = None,
    max_per_region: int | None = None,
) -> list[list[Interval]]:
    """Split regions, in order, into at most n parts, as evenly as whole grains allow.

    A part has at least `min_per_partition` elements if there are enough, and at most
    `max_per_partition`; a region is cut so that no piece has more than `max_per_region`.
    """
    begin = np.array([r.begin for r in regions], np.int64)
    end = np.array([r.end for r in regions], np.int64)
    part, low, high = split_columns(
        begin, end, grain, max_partitions, min_per_partition, max_per_partition, max_per_region
    )
    parts: list[list[Interval]] = [[] for _ in range(int(part[-1]) + 1 if len(part) else 0)]
    for p, a, b in zip(part.tolist(), low.tolist(), high.tolist(), strict=True):
        parts[p].append(Interval(a, b))
    return parts


def split_columns(
    begin: np.ndarray,
    end: np.ndarray,
    grain: int,
    max_partitions: int,
    min_per_partition: int = 0,
    max_per_partition: int | None = None,
    max_per_region: int | None = None,
) -> Columns:
    """`split_regions` on columns: (part, begin, end) of every piece, sorted by part."""
    sizes = end - begin
    total = int(sizes.sum())
    if total == 0:
        empty = np.empty(0, np.int64)
        return empty, empty, empty
    n_grains = -(-total // grain)
    n_parts = _n_parts(n_grains, grain, max_partitions, min_per_partition, max_per_partition)
    cuts = np.minimum(np.arange(n_parts + 1) * n_grains // n_parts * grain, total)
    ends = np.cumsum(sizes)
    before = ends - sizes
    points = np.unique(np.concatenate((cuts, before, ends)))
    low, high = points[:-1], points[1:]
    region = np.searchsorted(ends, low, "right")
    part = np.searchsorted(cuts, low, "right") - 1
    shift = begin[region] - before[region]
    low, high = low + shift, high + shift
    if max_per_region is None:
        return part, low, high
    step = max(grain, max_per_region // grain * grain)
    owner, within = expand(-(-(high - low) // step))
    start = low[owner] + within * step
    return part[owner], start, np.minimum(start + step, high[owner])


def _n_parts(
    n_grains: int, grain: int, max_partitions: int, min_per_part: int, max_per_part: int | None
) -> int:
    """Poplar's rule: as many parts as allowed, fewer where parts would be too small."""
    per_part = -(-n_grains // max_partitions)
    if max_per_part is not None:
        per_part = min(per_part, max(1, max_per_part // grain))
    if min_per_part > 0:
        allowed = max(1, n_grains // -(-min_per_part // grain))
        per_part = max(per_part, -(-n_grains // allowed))
    return -(-n_grains // per_part)


def split_regions_between_workers(
    target: Target,
    regions: Sequence[Interval],
    grain: int,
    min_per_worker: int = 0,
    max_per_worker: int | None = None,
    max_per_region: int | None = None,
) -> list[list[Interval]]:
    """Deal a tile's regions to its workers."""
    return split_regions(
        regions, grain, target.n_worker_contexts, min_per_worker, max_per_worker, max_per_region
    )


def merge_adjacent_regions(regions: Iterable[Interval]) -> list[Interval]:
    """Merge regions that touch."""
    merged: list[Interval] = []
    for region in regions:
        if merged and merged[-1].end == region.begin:
            merged[-1] = Interval(merged[-1].begin, region.end)
        else:
            merged.append(region)
    return merged


def flatten_intervals(nested: Iterable[Iterable[Interval]]) -> list[Interval]:
    """All intervals of lists of intervals, in order."""
    return [interval for part in nested for interval in part]


def interval_sequence_num_elements(intervals: Iterable[Interval]) -> int:
    """How many elements a sequence of intervals has."""
    return sum(len(interval) for interval in intervals)


def calculate_unshuffling_intervals(intervals: Sequence[Interval]) -> list[Interval]:
    """Where each part of a tensor is after its `intervals` were concatenated.

    The intervals are a permutation of [0, n): concatenating the result's slices undoes them.
    """
    ends = np.cumsum([len(i) for i in intervals]).tolist()
    placed = [(i.begin, Interval(e - len(i), e)) for i, e in zip(intervals, ends, strict=True)]
    return merge_adjacent_regions(place for _, place in sorted(placed, key=lambda pair: pair[0]))


def balanced_partition(n_elems: int, n_splits: int) -> tuple[int, int]:
    """(parts, size) of a range cut into at most n_splits equal parts; the last may be smaller."""
    size = -(-n_elems // n_splits) if n_splits else 0
    return (-(-n_elems // size), size) if size else (0, 0)
