"""Questions about where elements are: contiguous regions, overlaps, and who owns them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tremula.poplar.tensors.runs import Runs
from tremula.poplar.tensors.variables import VariableTable

ByteIntervals = tuple[np.ndarray, np.ndarray]  # begin and end of each


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Half-open [begin, end) over the flattened elements of a tensor."""

    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


def is_one_region(runs: Runs) -> bool:
    """Whether runs ascend without a gap."""
    if len(runs.start) > 1:
        return bool(
            (runs.stride[runs.count > 1] == 1).all()
            and (runs.start[1:] == runs.start[:-1] + runs.count[:-1]).all()
        )
    return len(runs.start) == 0 or runs.count[0] == 1 or runs.stride[0] == 1


def nests(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether each stride leaps over all that narrower ones reach: no place can appear twice."""
    reach = 1
    for stride, size in sorted(zip(map(abs, strides), shape, strict=True)):
        if size > 1:
            if stride < reach:
                return False
            reach = stride * size
    return True


def contiguous_regions(intervals: ByteIntervals, n_bytes: int) -> list[Interval]:
    """Intervals of elements in view order that are contiguous in memory."""
    begin, end = intervals
    ends = np.cumsum((end - begin) // n_bytes)
    joins = np.flatnonzero(begin[1:] != end[:-1])
    cuts = np.concatenate(([0], ends[joins], ends[-1:])).tolist() if len(ends) else []
    return [Interval(a, b) for a, b in pairwise(cuts)]


def regions_of_variables(
    variables: VariableTable, intervals: ByteIntervals, n_bytes: int
) -> list[tuple[int, Interval]]:
    """(variable id, element interval of the variable) of each interval."""
    begin, end = intervals
    ids = variables.ids_at(begin)
    base = np.asarray(variables.base_bytes)[ids]
    low, high = (begin - base) // n_bytes, (end - base) // n_bytes
    return [(int(v), Interval(int(a), int(b))) for v, a, b in zip(ids, low, high, strict=True)]


def intersect(some: ByteIntervals, others: ByteIntervals) -> bool:
    """Whether any of some intervals, at least one, overlaps any of the others."""
    if some[0].min() >= others[1].max() or others[0].min() >= some[1].max():
        return False  # as tensors of different variables mostly are
    order = np.argsort(some[0])
    begin, end = some[0][order], np.maximum.accumulate(some[1][order])
    last = np.searchsorted(begin, others[1], side="left") - 1
    return bool((end[np.maximum(last, 0)] > others[0])[last >= 0].any())
