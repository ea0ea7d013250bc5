"""Rows in the order of the segments that they are added to, for sums segment by segment.

The order of an index is computed once in a step (`tremula::segment_order`), for all kernels that
sum by it. Such a kernel (`printers/triton_segments.py`) reads each row once and needs hardly any
atomic addition. Whether it is used, or one over tiles of rows, is timed (`kernels.py`).
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

_BLOCK = 256  # rows that a program counts: two for each thread of four warps
_MIN_SUMS = 2  # by one index: for a single sum, ordering takes longer than it saves


@dataclass(frozen=True)
class SegmentIndex:
    """The segment that each row is added to."""

    index: fx.Node
    n_segments: int
    skipped: int
    wraps: bool


def segment_index_of(region: Region) -> SegmentIndex | None:
    """The index of a kernel that does nothing but sums by one index; None for others."""
    indices = set()
    for result in region.results:
        role = roles.segment_sum_of(result)
        if role is None or role.index in region.nodes:
            return None
        n_segments = roles.n_rows_of(result)
        indices.add(SegmentIndex(role.index, n_segments, role.skipped, role.wraps))
    has_products = any(roles.weight_of(node) for node in region.nodes)
    return indices.pop() if len(indices) == 1 and not has_products else None


@dataclass
class SegmentOrders:
    """The orders of rows that kernels of a step share."""

    step: CapturedStep
    indices: dict[Region, SegmentIndex]  # of kernels that can be printed segment by segment
    made: dict[SegmentIndex, list[fx.Node]] = field(default_factory=dict)

    @classmethod
    def of(cls, step: CapturedStep, regions: Sequence[Region], min_rows: int) -> "SegmentOrders":
        large = {r: segment_index_of(r) for r in regions if r.n_rows >= min_rows}
        indices = {region: index for region, index in large.items() if index is not None}
        uses = Counter(indices.values())
        return cls(step, {r: x for r, x in indices.items() if uses[x] >= _MIN_SUMS})

    def inputs(self, region: Region) -> list[fx.Node]:
        """The results of `segment_order` for a kernel; none for kernels of another kind."""
        index = self.indices.get(region)
        if index is None:
            return []
        if index not in self.made:
            self.made[index] = self._make(index, region.n_rows)
        return self.made[index]

    def _make(self, segments: SegmentIndex, n_rows: int) -> list[fx.Node]:
        graph = self.step.graph
        value = roles.tensor_of(segments.index)
        shapes = (n_rows, n_rows, segments.n_segments + 1)
        values = [value.new_empty(n, dtype=torch.int32) for n in shapes]
        with graph.inserting_after(segments.index):
            ordered = graph.call_function(
                torch.ops.tremula.segment_order.default,
                (segments.index, segments.n_segments, segments.skipped, segments.wraps),
            )
        ordered.meta = {**segments.index.meta, "val": values}
        items = []
        for position in reversed(range(len(values))):
            with graph.inserting_after(ordered):
                item = graph.call_function(operator.getitem, (ordered, position))
            item.meta = {**segments.index.meta, "val": values[position]}
            items.insert(0, item)
        return items


# -- the order of rows -----------------------------------------------------------------------------

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("segment_order(Tensor index, int n_segments, int skipped, bool wraps) -> Tensor[]")


def segment_order(index: Tensor, n_segments: int, skipped: int, wraps: bool) -> list[Tensor]:
    """Rows in the order of their segments, these segments, and where each segment starts.

    Rows without a segment are last, as if there were one more segment.
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
    """`segment_order` by counting, in a fifth of the time: rows of a segment come in any order."""
    if not has_triton():
        return segment_order(index, n_segments, skipped, wraps)
    count, put = _counting()
    index = index.reshape(-1).contiguous()
    n = index.numel()
    goes, rank = index.new_empty(2, n, dtype=torch.int32)
    # Results of an operation have separate memory, which begins at a multiple of 16 bytes.
    order, in_order = (index.new_empty(n, dtype=torch.int32) for _ in range(2))
    counts = index.new_zeros(n_segments + 1, dtype=torch.int32)
    grid = (-(-n // _BLOCK),)
    count[grid](index, goes, rank, counts, n, n_segments, skipped, wraps, BLOCK=_BLOCK)
    ends = torch.cumsum(counts, 0, dtype=torch.int32)
    starts = ends - counts
    put[grid](goes, rank, starts, order, in_order, n, BLOCK=_BLOCK)
    return [order, in_order, starts]


# ruff: noqa: ANN001, ANN202, N803, PLR0917 - Triton's language: annotations are constants, in capitals
@cache
def _counting() -> tuple[Any, Any]:
    """Kernels that count the rows of each segment, and that put rows into their order."""
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
