"""Sums into segments, segment by segment: a warp adds up the rows that go to one of them.

The rows of an index are put in the order of where they go once in a step (`segment_order`), for all
sums that use it. A kernel then reads each row once, keeps its sum in registers and stores it. What
a segment has beyond its first rows (`LONG`) is left to programs of their own, which add to it: in
padded batches a few nodes have hundreds of edges. Which form of a kernel is used, this one or tiles
of rows, is timed (`kernels.py`).
"""

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.kernels import has_triton
from tremula.ir.host.graph_kernels.regions import Region
from tremula.ir.step import CapturedStep

_COUNTED = 256  # rows that a program counts
_FEWEST_SUMS = 2  # by one index: else ordering takes longer than it saves


@dataclass(frozen=True)
class Goal:
    """Where rows go."""

    index: fx.Node
    n_segments: int
    skipped: int
    wraps: bool


def goal_of(region: Region) -> Goal | None:
    """Where all sums of a kernel go, if sums to one place are all that it does."""
    goals = set()
    for result in region.results:
        matches = roles.segment_sum_of(result)
        if matches is None or matches.index in region.nodes:
            return None
        goals.add(Goal(matches.index, roles.n_rows_of(result), matches.skipped, matches.wraps))
    has_products = any(roles.weight_of(node) for node in region.nodes)
    return goals.pop() if len(goals) == 1 and not has_products else None


@dataclass
class SegmentOrders:
    """The orders of rows that kernels of a step share."""

    step: CapturedStep
    goals: dict[Region, Goal]  # of kernels that can be written segment by segment
    made: dict[Goal, list[fx.Node]] = field(default_factory=dict)

    @classmethod
    def of(cls, step: CapturedStep, regions: Sequence[Region], fewest_rows: int) -> "SegmentOrders":
        result = {r: goal_of(r) for r in regions if r.n_rows >= fewest_rows}
        goals = {region: goal for region, goal in result.items() if goal is not None}
        uses = Counter(goals.values())
        return cls(step, {r: goal for r, goal in goals.items() if uses[goal] >= _FEWEST_SUMS})

    def inputs(self, region: Region) -> list[fx.Node]:
        """What `segment_order` gives; nothing for other kernels."""
        goal = self.goals.get(region)
        if goal is None:
            return []
        if goal not in self.made:
            self.made[goal] = self._make(goal, region.n_rows)
        return self.made[goal]

    def _make(self, goal: Goal, n_rows: int) -> list[fx.Node]:
        graph = self.step.graph
        value = roles.tensor_of(goal.index)
        shapes = (n_rows, n_rows, goal.n_segments + 1)
        values = [value.new_empty(n, dtype=torch.int32) for n in shapes]
        with graph.inserting_after(goal.index):
            ordered = graph.call_function(
                torch.ops.tremula.segment_order.default,
                (goal.index, goal.n_segments, goal.skipped, goal.wraps),
            )
        ordered.meta = {**goal.index.meta, "val": values}
        items = []
        for place in reversed(range(len(values))):
            with graph.inserting_after(ordered):
                item = graph.call_function(operator.getitem, (ordered, place))
            item.meta = {**goal.index.meta, "val": values[place]}
            items.insert(0, item)
        return items


# -- the order of rows -----------------------------------------------------------------------------

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("segment_order(Tensor index, int n_segments, int skipped, bool wraps) -> Tensor[]")


def segment_order(index: Tensor, n_segments: int, skipped: int, wraps: bool) -> list[Tensor]:
    """Rows by where they go, where that is, and where each segment starts.

    Rows that go nowhere are last, as if to a segment behind the others.
    """
    goes = index.reshape(-1).int()
    if wraps:
        goes = torch.where(goes < 0, goes + n_segments, goes)
    is_there = (goes >= 0) & (goes < n_segments)
    if skipped >= 0:
        is_there &= goes != skipped
    in_order, order = torch.sort(torch.where(is_there, goes, n_segments), stable=True)
    each = torch.arange(n_segments + 1, dtype=torch.int32, device=index.device)
    return [order.int(), in_order, torch.searchsorted(in_order, each, out_int32=True)]


def _counted_order(index: Tensor, n_segments: int, skipped: int, wraps: bool) -> list[Tensor]:
    """The same by counting, a fifth of the time: rows of a segment come in any order."""
    if not has_triton():
        return segment_order(index, n_segments, skipped, wraps)
    count, put = _counting()
    index = index.reshape(-1).contiguous()
    n = index.numel()
    goes, rank, order, in_order = index.new_empty(4, n, dtype=torch.int32)
    counts = index.new_zeros(n_segments + 1, dtype=torch.int32)
    grid = (-(-n // _COUNTED),)
    count[grid](index, goes, rank, counts, n, n_segments, skipped, wraps, BLOCK=_COUNTED)
    ends = torch.cumsum(counts, 0, dtype=torch.int32)
    starts = ends - counts
    put[grid](goes, rank, starts, order, in_order, n, BLOCK=_COUNTED)
    return [order, in_order, starts]


# ruff: noqa: ANN001, ANN202, N803, PLR0917 - Triton's language: annotations are constants, in capitals
@cache
def _counting() -> tuple[Any, Any]:
    """Kernels that count the rows of each segment, and that put rows where they belong."""
    import triton  # pyright: ignore[reportMissingImports]
    import triton.language as tl  # pyright: ignore[reportMissingImports]

    @triton.jit
    def count(index, goes, rank, counts, n, n_segments, skipped, wraps, BLOCK: tl.constexpr):
        row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        live = row < n
        to = tl.load(index + row, mask=live, other=0)
        to = tl.where(wraps & (to < 0), to + n_segments, to)
        is_there = (to >= 0) & (to < n_segments) & (to != skipped)
        to = tl.where(is_there, to, n_segments).to(tl.int32)
        before = tl.atomic_add(counts + to, 1, mask=live, sem="relaxed")
        tl.store(goes + row, to, mask=live)
        tl.store(rank + row, before, mask=live)

    @triton.jit
    def put(goes, rank, starts, order, in_order, n, BLOCK: tl.constexpr):
        row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        live = row < n
        to = tl.load(goes + row, mask=live, other=0)
        place = tl.load(starts + to, mask=live, other=0) + tl.load(rank + row, mask=live, other=0)
        tl.store(order + place, row, mask=live)
        tl.store(in_order + place, to, mask=live)

    return count, put


def _fake(index: Tensor, n_segments: int, _skipped: int, _wraps: bool) -> list[Tensor]:
    sizes = (index.numel(), index.numel(), n_segments + 1)
    return [index.new_empty(n, dtype=torch.int32) for n in sizes]


_library.impl("segment_order", segment_order, "CPU")
_library.impl("segment_order", _counted_order, "CUDA")
torch.library.register_fake("tremula::segment_order", _fake, lib=_library)
