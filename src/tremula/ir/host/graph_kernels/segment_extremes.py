"""The largest or smallest of each segment, by one kernel that also gathers the rows it compares.

ATen compares rows by atomic operations, one for each element, after it has written the gathered
rows. Here rows are read in the order of their segments (`segment_order.py`): a warp compares those
of one segment in registers, and only segments with many rows need atomic operations.
"""

import operator
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.kernels import has_triton
from tremula.ir.nodes import operand
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_MIN_ROWS = 1 << 14  # fewer are not ordered faster than ATen compares them
_BLOCK, _LONG = 8, 64  # rows that a warp reads together, and rows of a segment for one warp
_MAX_WIDTH = 256  # features of a program
_KINDS = {"amax": True, "amin": False}


@dataclass(frozen=True)
class SegmentExtreme:
    """Row s of the result is the largest, or smallest, of the rows r with `index[r] == s`."""

    before: fx.Node  # the result of segments without rows
    source: fx.Node
    index: fx.Node
    is_largest: bool
    includes_before: bool  # in what is compared


def segment_extreme_of(node: fx.Node) -> SegmentExtreme | None:
    """What a node compares; None if it compares no rows of floats."""
    if node.target is not aten.scatter_reduce.two or node.args[4] not in _KINDS:
        return None
    before, index, source = (operand(node, i) for i in (0, 2, 3))
    rows = roles.plain_index(index)
    is_first = roles.is_first_dimension(node.args[1], before)
    is_whole = roles.tensor_of(index).shape == roles.tensor_of(source).shape
    if rows is None or not is_first or not is_whole:
        return None
    if roles.tensor_of(source).dtype is not torch.float32:
        return None
    if roles.features_of(source) != roles.features_of(before):
        return None
    includes = bool(node.kwargs.get("include_self", True))
    return SegmentExtreme(before, source, rows, _KINDS[str(node.args[4])], includes)


def compare_by_segments(
    step: CapturedStep, device: torch.device, min_rows: int = _MIN_ROWS
) -> CapturedStep:
    """Replace comparisons of many rows; their gradients' sums become sums from zero."""
    orders = _Orders(step.graph)
    for node in list(step.graph.nodes):
        role = segment_extreme_of(node)
        if role is not None and roles.n_rows_of(role.source) >= min_rows:
            _replace(step.graph, node, role, orders)
        elif node.target is aten.scatter_add.default and roles.n_rows_of(node) and orders.made:
            _add_from_zero(step.graph, node, device)
    return step


@dataclass
class _Orders:
    """Rows in the order of their segments, once for each index."""

    graph: fx.Graph
    made: dict[tuple[fx.Node, int], list[fx.Node]] = field(default_factory=dict)

    def of(self, index: fx.Node, n_segments: int) -> list[fx.Node]:
        if (index, n_segments) not in self.made:
            self.made[index, n_segments] = self._make(index, n_segments)
        return self.made[index, n_segments]

    def _make(self, index: fx.Node, n_segments: int) -> list[fx.Node]:
        target = torch.ops.tremula.segment_order.default
        value = roles.tensor_of(index)
        sizes = (value.numel(), value.numel(), n_segments + 1)
        values = [value.new_empty(n, dtype=torch.int32) for n in sizes]
        with self.graph.inserting_after(index):
            ordered = self.graph.call_function(target, (index, n_segments, -1, False))
        ordered.meta = {**index.meta, "val": values}
        items = []
        for position in reversed(range(len(values))):
            with self.graph.inserting_after(ordered):
                item = self.graph.call_function(operator.getitem, (ordered, position))
            item.meta = {**index.meta, "val": values[position]}
            items.insert(0, item)
        return items


def _replace(graph: fx.Graph, node: fx.Node, role: SegmentExtreme, orders: _Orders) -> None:
    gather = roles.gather_of(role.source)
    if gather is not None and (gather.wraps or gather.table.meta["val"].dim() == 1):
        gather = None
    table, rows = (role.source, None) if gather is None else (gather.table, gather.index)
    order = orders.of(role.index, roles.n_rows_of(node))
    args = (table, rows, order, role.index, role.before, role.is_largest, role.includes_before)
    with graph.inserting_before(node):
        made = graph.call_function(torch.ops.tremula.segment_extreme.default, args)
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _add_from_zero(graph: fx.Graph, node: fx.Node, device: torch.device) -> None:
    """before.scatter_add(…) as before + zeros.scatter_add(…), which is a sum into segments."""
    before, dim, index, source = node.args
    value = roles.tensor_of(node)
    if roles.is_zero(before) or not value.is_floating_point():
        return
    with graph.inserting_before(node):
        zeros = graph.call_function(
            aten.full.default,
            (list(value.shape), 0),
            {"dtype": value.dtype, "device": device},
        )
        added = graph.call_function(aten.scatter_add.default, (zeros, dim, index, source))
        total = graph.call_function(aten.add.Tensor, (before, added))
    for made in (zeros, added, total):
        made.meta.update(node.meta)
    node.replace_all_uses_with(total)
    graph.erase_node(node)


# -- the operation ---------------------------------------------------------------------------------

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define(
    "segment_extreme(Tensor table, Tensor? rows, Tensor[] order, Tensor index, Tensor before,"
    " bool is_largest, bool includes_before) -> Tensor"
)


def _by_aten(
    table: Tensor,
    rows: Tensor | None,
    _order: list[Tensor],
    index: Tensor,
    before: Tensor,
    is_largest: bool,
    includes_before: bool,
) -> Tensor:
    source = table if rows is None else table.index_select(0, rows)
    every = index.view(-1, *(1 for _ in source.shape[1:])).expand_as(source).long()
    kind = "amax" if is_largest else "amin"
    return before.scatter_reduce(0, every, source, kind, include_self=includes_before)


def _on_gpu(
    table: Tensor,
    rows: Tensor | None,
    order: list[Tensor],
    index: Tensor,
    before: Tensor,
    is_largest: bool,
    includes_before: bool,
) -> Tensor:
    if not has_triton():
        return _by_aten(table, rows, order, index, before, is_largest, includes_before)
    table, before = table.contiguous(), before.contiguous()
    n_segments, n_features = before.shape[0], prod(before.shape[1:])
    if includes_before:
        result = before.clone()
    else:
        result = torch.full_like(before, float("-inf" if is_largest else "inf"))
    width = min(_MAX_WIDTH, roles.padded(n_features))
    grid = (n_segments + -(-index.numel() // _LONG), -(-n_features // width))
    gathered = table if rows is None else rows  # a pointer that is not read
    _comparing()[grid](
        table, gathered, *order, before, result, table.shape[0], n_segments, n_features,
        GATHERS=rows is not None, LARGEST=is_largest, INCLUDES=includes_before,
        BLOCK=_BLOCK, WIDTH=width, LONG=_LONG, num_warps=1,
    )  # fmt: skip
    return result


def _fake(_table: Tensor, _rows: Tensor | None, _order: list, _index: Tensor, before: Tensor,
          _is_largest: bool, _includes: bool) -> Tensor:  # fmt: skip
    return torch.empty_like(before, memory_format=torch.contiguous_format)


_library.impl("segment_extreme", _by_aten, "CPU")
_library.impl("segment_extreme", _on_gpu, "CUDA")
torch.library.register_fake("tremula::segment_extreme", _fake, lib=_library)


# ruff: noqa: ANN001, ANN202, N803, PLR0913, PLR0917, PLR0124 - Triton's language
@cache
def _combining() -> tuple[Any, Any]:
    """How two values are compared, and how one is compared with what is in memory."""
    import triton  # pyright: ignore[reportMissingImports]
    import triton.language as tl  # pyright: ignore[reportMissingImports]

    @triton.jit
    def larger(a, b):
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)

    @triton.jit
    def combine(result, at, value, mask, LARGEST: tl.constexpr):
        # Floats of one sign are ordered as their bits are; NaN is beyond all others.
        nan = 0x7FC00000 if LARGEST else -0x400000
        bits = tl.where(value == value, value.to(tl.int32, bitcast=True), nan)
        signed = result.to(tl.pointer_type(tl.int32), bitcast=True) + at
        unsigned = result.to(tl.pointer_type(tl.uint32), bitcast=True) + at
        positive, negative = mask & (bits >= 0), mask & (bits < 0)
        if LARGEST:
            tl.atomic_max(signed, bits, mask=positive, sem="relaxed")
            tl.atomic_min(unsigned, bits.to(tl.uint32, bitcast=True), mask=negative, sem="relaxed")
        else:
            tl.atomic_min(signed, bits, mask=positive, sem="relaxed")
            tl.atomic_max(unsigned, bits.to(tl.uint32, bitcast=True), mask=negative, sem="relaxed")

    return larger, combine


@cache
def _comparing() -> Any:  # noqa: ANN401 - Triton's own type, which loads it
    """The kernel: a program for each segment's first rows, then one for each further part."""
    import triton  # pyright: ignore[reportMissingImports]
    import triton.language as tl  # pyright: ignore[reportMissingImports]

    larger, combine = _combining()

    @triton.jit
    def compare(
        table, rows, order, in_order, starts, before, result, n_table, n_segments, n_features,
        GATHERS: tl.constexpr, LARGEST: tl.constexpr, INCLUDES: tl.constexpr,
        BLOCK: tl.constexpr, WIDTH: tl.constexpr, LONG: tl.constexpr,
    ):  # fmt: skip
        program = tl.program_id(0)
        column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        inside = column < n_features
        is_first = program < n_segments
        part = tl.maximum(program - n_segments, 0) * LONG
        shared = tl.load(in_order + part, mask=program >= n_segments, other=0)
        segment = tl.where(is_first, program, shared)
        exists = segment < n_segments
        low = tl.load(starts + segment, mask=exists, other=0)
        high = tl.load(starts + segment + 1, mask=exists, other=0)
        begin = tl.where(is_first, low, tl.maximum(part, low + LONG))
        end = tl.minimum(high, tl.where(is_first, low, part) + LONG)
        best = tl.full([WIDTH], float("-inf"), tl.float32)
        for first in range(begin, end, BLOCK):
            place = first + tl.arange(0, BLOCK)
            live = place < end
            row = tl.load(order + place, mask=live, other=0).to(tl.int64)
            if GATHERS:
                row = tl.load(rows + row, mask=live, other=0).to(tl.int64)
            is_row = live & (row >= 0) & (row < n_table)
            at = table + row[:, None] * n_features + column[None, :]
            value = tl.load(at, mask=is_row[:, None] & inside[None, :], other=float("nan"))
            if not LARGEST:
                value = -value
            value = tl.where(live[:, None], value, float("-inf"))
            best = larger(best, tl.reduce(value, 0, larger))
        at = segment.to(tl.int64) * n_features + column
        is_alone = is_first & exists & (high - low <= LONG)
        old = tl.load(before + at, mask=inside & is_alone, other=0.0)
        value = best if LARGEST else -best
        combined = tl.where(high > low, value, old)
        if INCLUDES:
            combined = larger(old, value) if LARGEST else -larger(-old, best)
        tl.store(result + at, combined, mask=inside & is_alone)
        is_shared = exists & (begin < end) & (high - low > LONG)
        combine(result, at, value, inside & is_shared, LARGEST)

    return compare
