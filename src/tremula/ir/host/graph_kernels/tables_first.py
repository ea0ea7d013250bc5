"""Pass for layers over edges: rows of nodes are multiplied before they are gathered.

The layer of a message reads rows of both ends of an edge, beside numbers of the edge itself. It is
a sum of products, and a row that many edges gather need only be multiplied once. S sums the rows of
edges by the end i or j:

    y  = [x[i] | x[j] | e] w        = (x w1)[i] + (x w2)[j] + e w3          w = [w1; w2; w3]
    dw = [x[i] | x[j] | e]ᵀ dy      = [xᵀ Si dy; xᵀ Sj dy; eᵀ dy]
    dx = Si (dy w1ᵀ) + Sj (dy w2ᵀ)  = (Si dy) w1ᵀ + (Sj dy) w2ᵀ

A graph has several times as many edges as nodes: products over edges become products over nodes,
and what is left over edges are gathers, additions and sums, which are fused with their neighbours.
Derivatives of any order have the form of these products. Only for floats: in halves, the sum of
parts would be rounded once more for each of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import fx

from tremula.ir.host.graph_kernels.roles import (
    MIN_SIDE,
    Gather,
    SegmentSum,
    base_of_matrix,
    features_of,
    gather_of,
    n_rows_of,
    segment_sum_of,
    tensor_of,
    value_of,
)
from tremula.ir.host.graph_kernels.sum_first import gathered_rows, summed_by_segment
from tremula.ir.nodes import call_like, ints, operand, whole
from tremula.ir.passes.clean import drop_dead
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.addmm.default)
_LEAST_RATIO = 2  # of rows to those of the table: as many products are saved, for a gather more
_FLOATS = (torch.float32, torch.float64)


def multiply_tables(step: CapturedStep, device: torch.device) -> CapturedStep:
    """Products over gathered rows become products over their tables, which have fewer rows."""
    rewriter = _Rewriter(step.graph, device)
    for node in list(step.graph.nodes):
        if node.target in _PRODUCTS and _is_plain(node):
            rewriter.rewrite_product(node)
        if terms := _products_added(node):
            rewriter.multiply_slices(node, terms)
        elif _few_segments(node) is not None:
            rewriter.rewrite_sum(node)
    return drop_dead(step)


def _is_plain(node: fx.Node) -> bool:
    if node.kwargs or tensor_of(node).dtype not in _FLOATS:
        return False
    return node.target is aten.mm.default or tensor_of(operand(node)).dim() == 1


def _products_added(node: fx.Node) -> list[fx.Node]:
    """The products of which a node is the sum, if nothing else reads them; itself, if it is one."""
    if node.target is aten.mm.default:
        is_row_wise = _is_plain(node) and not base_of_matrix(operand(node))[1]
        return [node] if is_row_wise else []
    if node.target is not aten.add.Tensor or node.kwargs or value_of(node) is None:
        return []
    terms = [
        _products_added(x) if isinstance(x, fx.Node) and len(x.users) == 1 else []
        for x in node.args
    ]
    same = all(tensor_of(x).shape == tensor_of(node).shape for each in terms for x in each)
    return [x for each in terms for x in each] if all(terms) and same else []


# -- what is multiplied ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Columns:
    """Columns of a matrix: all columns of another one."""

    begin: int
    end: int
    source: fx.Node


def _columns_of(node: fx.Node) -> list[_Columns]:
    """A matrix as others side by side, in order; columns of none are zero. Empty: not known."""
    value = value_of(node)
    if value is None or value.dim() != 2:
        return []
    if node.target is aten.cat.default:
        return _columns_of_cat(node)
    if node.target is aten.slice_backward.default:
        return _columns_of_slice(node)
    if node.target is aten.add.Tensor and not node.kwargs:
        both = [_columns_of(x) if isinstance(x, fx.Node) else [] for x in node.args]
        columns = sorted([c for one in both for c in one], key=lambda c: c.begin)
        is_apart = all(a.end <= b.begin for a, b in pairwise(columns))
        return columns if all(both) and is_apart else []
    return []


def _columns_of_cat(node: fx.Node) -> list[_Columns]:
    if len(node.args) < 2 or whole(node.args[1]) not in (1, -1):
        return []
    columns, begin = [], 0
    for source in cast("list[fx.Node]", node.args[0]):
        end = begin + tensor_of(source).shape[1]
        columns.append(_Columns(begin, end, source))
        begin = end
    return columns


def _columns_of_slice(node: fx.Node) -> list[_Columns]:
    """The gradient of a matrix of which some columns were read."""
    source, shape, dim, begin, _, step = node.args
    begin, width = whole(begin), tensor_of(operand(node)).shape[1]
    if whole(dim) != 1 or whole(step) != 1 or begin < 0 or len(ints(shape)) != 2:
        return []
    return [_Columns(begin, begin + width, cast("fx.Node", source))]


def _few_rows(node: fx.Node) -> Gather | None:
    """How rows are gathered from a table that has fewer; None if they are not."""
    gather = gather_of(node)
    if gather is None or len(features_of(node)) != 1 or features_of(node)[0] < MIN_SIDE:
        return None  # few features are multiplied faster than their products are gathered
    return gather if _LEAST_RATIO * n_rows_of(gather.table) <= n_rows_of(node) else None


def _few_segments(node: fx.Node) -> SegmentSum | None:
    """How rows are summed into fewer; None if they are not."""
    if node.op != "call_function" or value_of(node) is None:
        return None
    segments = segment_sum_of(node)
    if segments is None or segments.skipped >= 0 or len(features_of(segments.source)) != 1:
        return None
    return segments if _LEAST_RATIO * n_rows_of(node) <= n_rows_of(segments.source) else None


def _is_smaller(node: fx.Node) -> bool:
    """Whether a matrix is gathered from a smaller one, wholly or in part, or half of it is zero."""
    if _few_rows(node) is not None:
        return True
    columns = _columns_of(node)
    n_known = sum(c.end - c.begin for c in columns)
    is_sparse = bool(columns) and 2 * n_known <= tensor_of(node).shape[1]
    return is_sparse or any(_is_smaller(c.source) for c in columns)


# -- rewriting -------------------------------------------------------------------------------------


class _Rewriter:
    """Puts new nodes before the one it replaces; equal sums and parts of weights are made once."""

    def __init__(self, graph: fx.Graph, device: torch.device):
        self._graph = graph
        self._device = device
        self._made: dict[tuple, fx.Node] = {}

    def rewrite_product(self, node: fx.Node) -> None:
        left, is_transposed = base_of_matrix(operand(node, -2))
        right = operand(node, -1)
        with self._graph.inserting_before(node):
            if is_transposed and (_is_smaller(left) or _is_smaller(right)):
                result = self._outer(left, right, node)
            elif not is_transposed and _is_smaller(left):
                result = self._times(left, right, node)
            else:
                return
            if node.target is aten.addmm.default:
                result = call_like(self._graph, aten.add.Tensor, (result, operand(node)), node)
        node.replace_all_uses_with(result)

    def rewrite_sum(self, node: fx.Node) -> None:
        """Sum rows before they are multiplied, where nothing else reads the product.

        Not rows that are much wider than what they become: their sums take longer.
        """
        segments = _few_segments(node)
        assert segments is not None, "asked for before"
        terms = _products_added(segments.source)
        widest = max((tensor_of(operand(term)).shape[1] for term in terms), default=0)
        if len(segments.source.users) > 1 or not terms or widest > 2 * features_of(node)[0]:
            return
        with self._graph.inserting_before(node):
            n = n_rows_of(node)
            products = [
                (self._summed(operand(x), segments.index, segments.wraps, n, node), operand(x, 1))
                for x in terms
            ]
            result = self._added(products, node)
        node.replace_all_uses_with(result)

    def _added(self, products: list[tuple[fx.Node, fx.Node]], like: fx.Node) -> fx.Node:
        """The sum of some products."""
        parts = [call_like(self._graph, aten.mm.default, both, like) for both in products]
        return self._sum_of(parts, like)

    def _sum_of(self, parts: list[fx.Node], like: fx.Node) -> fx.Node:
        total = parts[0]
        for part in parts[1:]:
            total = call_like(self._graph, aten.add.Tensor, (total, part), like)
        return total

    def _times(self, rows: fx.Node, weight: fx.Node, like: fx.Node) -> fx.Node:
        """Rows times a matrix."""
        gather = _few_rows(rows)
        if gather is not None:
            product = self._times(gather.table, weight, like)
            return gathered_rows(self._graph, product, gather, like)
        if not _is_smaller(rows):
            return call_like(self._graph, aten.mm.default, (rows, weight), like)
        parts = [
            self._times(c.source, self._part_of_weight(weight, 0, c.begin, c.end, like), like)
            for c in _columns_of(rows)
        ]
        return self._sum_of(parts, like)

    def _outer(self, left: fx.Node, right: fx.Node, like: fx.Node) -> fx.Node:
        """The sum over all rows of the outer products of two of them."""
        gather = _few_rows(left)
        if gather is not None:
            n = n_rows_of(gather.table)
            summed = self._summed(right, gather.index, gather.wraps, n, like)
            return self._outer(gather.table, summed, like)
        gather = _few_rows(right)
        if gather is not None:
            n = n_rows_of(gather.table)
            summed = self._summed(left, gather.index, gather.wraps, n, like)
            return self._outer(summed, gather.table, like)
        if _is_smaller(left):
            return self._joined(left, 0, lambda part: self._outer(part, right, like), like)
        if _is_smaller(right):
            return self._joined(right, 1, lambda part: self._outer(left, part, like), like)
        transposed = call_like(self._graph, aten.t.default, (left,), like)
        return call_like(self._graph, aten.mm.default, (transposed, right), like)

    def _joined(
        self, matrix: fx.Node, dim: int, part_of: Callable[[fx.Node], fx.Node], like: fx.Node
    ) -> fx.Node:
        """What is computed of each of a matrix's parts, one beside the other, and zeros between."""
        parts: list[fx.Node] = []
        end = 0
        width = tensor_of(matrix).shape[1]
        for columns in [*_columns_of(matrix), _Columns(width, width, matrix)]:
            if columns.begin > end:
                parts.append(self._zeros(columns.begin - end, dim, like))
            if columns.begin < columns.end:
                parts.append(part_of(columns.source))
            end = columns.end
        if len(parts) == 1:
            return parts[0]
        return call_like(self._graph, aten.cat.default, (parts, dim), like)

    def _zeros(self, n: int, dim: int, like: fx.Node) -> fx.Node:
        value = tensor_of(like)
        shape = [n, value.shape[1]] if dim == 0 else [value.shape[0], n]
        made = {"dtype": value.dtype, "device": self._device}
        zeros = self._graph.call_function(aten.full.default, (shape, 0), made)
        zeros.meta = {**like.meta, "val": value.new_empty(shape)}
        return zeros

    def multiply_slices(self, total: fx.Node, terms: list[fx.Node]) -> None:
        """Products for the slices of a sum of them, where sums follow, or few columns are read."""
        ranges = {s: both for s in total.users if (both := _column_range(s)) is not None}
        if not ranges or len(ranges) != len(total.users):
            return
        n_read = sum(end - begin for begin, end in ranges.values())
        if 2 * n_read > tensor_of(total).shape[1] and not any(
            _few_segments(user) is not None for s in ranges for user in s.users
        ):
            return
        for node, (begin, end) in ranges.items():
            with self._graph.inserting_before(total):
                products = [
                    (operand(x), self._part_of_weight(operand(x, 1), 1, begin, end, total))
                    for x in terms
                ]
                node.replace_all_uses_with(self._added(products, total))

    def _summed(
        self, rows: fx.Node, index: fx.Node, wraps: bool, n_rows: int, like: fx.Node
    ) -> fx.Node:
        key = ("sum", rows, index, wraps, n_rows)
        if key not in self._made:
            self._made[key] = summed_by_segment(
                self._graph, rows, index, n_rows, like, self._device, wraps=wraps
            )
        return self._made[key]

    def _part_of_weight(
        self, weight: fx.Node, dim: int, begin: int, end: int, like: fx.Node
    ) -> fx.Node:
        """Some rows or columns of a matrix, contiguous: products read them fast then."""
        base, is_transposed = base_of_matrix(weight)
        dim = 1 - dim if is_transposed else dim
        key = ("part", base, dim, begin, end)
        if key not in self._made:
            part = call_like(self._graph, aten.slice.Tensor, (base, dim, begin, end), like)
            if dim == 1:
                part = call_like(self._graph, aten.clone.default, (part,), like)
            self._made[key] = part
        part = self._made[key]
        return call_like(self._graph, aten.t.default, (part,), like) if is_transposed else part


def _column_range(node: fx.Node) -> tuple[int, int] | None:
    """The columns that a node reads of a matrix."""
    if node.target is not aten.slice.Tensor or node.kwargs or len(node.args) < 4:
        return None
    _, dim, begin, end, *step = node.args
    n = tensor_of(operand(node)).shape[1]
    if whole(dim) != 1 or (step and step[0] != 1) or begin is None or end is None:
        return None
    begin, end = whole(begin), min(whole(end), n)
    return (begin, end) if 0 <= begin < end else None
