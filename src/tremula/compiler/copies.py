"""Copy planning: two views of equal size → paired runs with equal counts."""

import numpy as np

from tremula.compiler.form import CopyPlan
from tremula.poplar.runs import Pieces, Runs
from tremula.poplar.tensor import Tensor


def plan_copy(source: Tensor, destination: Tensor) -> CopyPlan:
    """How to copy one tensor to another in flattened order."""
    return pair_runs(
        source.runs(), destination.runs(), source.type.n_bytes, source.intersects_with(destination)
    )


def pair_runs(source: Runs, destination: Runs, n_bytes: int, overlaps: bool = False) -> CopyPlan:
    """Cut both sides at each other's boundaries."""
    same = len(source.count) == len(destination.count)
    if not same or not np.array_equal(source.count, destination.count):
        left, right = Pieces(source), Pieces(destination)
        # Both are sorted: a stable sort merges them, where a general union would hash each cut.
        cuts = np.sort(np.concatenate((left.start, right.start)), kind="stable")
        cuts = cuts[np.flatnonzero(np.diff(cuts, prepend=-1))]
        source = left.lookup_intervals(cuts[:-1], cuts[1:])[0]
        destination = right.lookup_intervals(cuts[:-1], cuts[1:])[0]
    return CopyPlan(source, destination, n_bytes, overlaps)


def contiguous_pairs(plan: CopyPlan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source byte, destination byte, n_bytes) of maximal pieces contiguous on both sides."""
    both = (plan.source.stride == 1) & (plan.destination.stride == 1) | (plan.source.count == 1)
    if bool(both.all()):
        size = plan.n_bytes
        return plan.source.start * size, plan.destination.start * size, plan.source.count * size
    source, destination = plan.source.addresses(), plan.destination.addresses()
    joins = (np.diff(source) == 1) & (np.diff(destination) == 1)
    first = np.flatnonzero(np.concatenate(([True], ~joins)))
    count = np.diff(np.append(first, len(source)))
    return source[first] * plan.n_bytes, destination[first] * plan.n_bytes, count * plan.n_bytes
