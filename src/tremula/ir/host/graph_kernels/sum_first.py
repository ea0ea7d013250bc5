"""Pass for layers over inputs: rows are summed into segments before they are multiplied.

A graph convolution multiplies the rows of all nodes by a matrix, and then sums those of neighbours,
each times a number. Both are linear, so the sums may come first:

    y = S (x wᵀ)              y = h wᵀ     h = S x        S: gather, scale, sum into segments
    dw = (Sᵀ dy)ᵀ x           dw = dyᵀ h                  Sᵀ: the sum of the backward pass

Where x needs no gradient, as features of a graph, the sum of the backward pass is not needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import fx

from tremula.ir.host.graph_kernels.roles import (
    Gather,
    SegmentSum,
    features_of,
    gather_of,
    n_rows_of,
    segment_sum_of,
    tensor_of,
)
from tremula.ir.nodes import call_like, operand
from tremula.ir.passes.clean import drop_dead
from tremula.ir.step import CapturedStep

aten = torch.ops.aten


def sum_before_products(step: CapturedStep, device: torch.device) -> CapturedStep:
    """Sum first where that saves a sum of the backward pass."""
    sums = [linear for node in step.graph.nodes if (linear := _weighted_sum_of(node)) is not None]
    first: dict[tuple, fx.Node] = {}  # sums of inputs, by these and what is summed
    for linear in sums:
        product = linear.gather.table
        if product.target is not aten.mm.default or not _is_read_once(linear):
            continue
        rows = operand(product)
        key = rows, linear.indices
        gradients = _gradients(sums, linear, rows)
        if _is_faster(product) and (gradients or key in first):
            if key not in first:
                first[key] = _summed(step.graph, linear, rows, device)
            _multiply_sums(step.graph, linear, first[key], gradients)
    return drop_dead(step)


@dataclass(frozen=True)
class _WeightedSum:
    """Rows that are gathered, each times a number, and summed into segments."""

    node: fx.Node
    gather: Gather
    scale: fx.Node | None  # a column of numbers
    segments: SegmentSum

    @property
    def indices(self) -> tuple:
        """What it reads and where it adds: two sums with equal ones are the same function."""
        read = self.gather.index, self.gather.wraps, n_rows_of(self.gather.table)
        return read, self.scale, (self.segments.index, self.segments.wraps, n_rows_of(self.node))

    @property
    def transposed_indices(self) -> tuple:
        read, scale, added = self.indices
        return added, scale, read


def _weighted_sum_of(node: fx.Node) -> _WeightedSum | None:
    segments = segment_sum_of(node)
    if segments is None or len(features_of(node)) != 1 or segments.skipped >= 0:
        return None
    source, scale = segments.source, None
    if source.target is aten.mul.Tensor and isinstance(source.args[1], fx.Node):
        factors = operand(source), operand(source, 1)
        for rows, column in (factors, factors[::-1]):
            if tensor_of(column).shape == (n_rows_of(source), 1):
                source, scale = rows, column
                break
    gather = gather_of(source)
    return None if gather is None else _WeightedSum(node, gather, scale, segments)


def _is_read_once(linear: _WeightedSum) -> bool:
    """Whether nothing else reads the product, or what is gathered from it."""
    source = linear.segments.source
    steps = {linear.gather.table, source}
    if linear.scale is not None:
        steps |= {x for x in source.all_input_nodes if x is not linear.scale}
    return all(len(node.users) == 1 for node in steps)


def _gradients(
    sums: list[_WeightedSum], linear: _WeightedSum, rows: fx.Node
) -> list[tuple[fx.Node, fx.Node]]:
    """Products of transposed sums with the rows, which nothing else reads, and what these sum."""
    gradients: list[tuple[fx.Node, fx.Node]] = []
    for other in sums:
        if other.indices != linear.transposed_indices:
            continue
        products = list(_products_with_rows(other.node, rows))
        views = {view for view in other.node.users if view.target is aten.t.default}
        n_read = sum(len(view.users) for view in views) + len(other.node.users) - len(views)
        if n_read == len(products) and all(linear.node < product for product in products):
            gradients += [(product, other.gather.table) for product in products]
    return gradients


def _products_with_rows(node: fx.Node, rows: fx.Node) -> Iterator[fx.Node]:
    """Products of a matrix's transpose with rows, and of the rows' transpose with it."""
    for user in node.users:
        if user.target is aten.t.default:
            yield from (p for p in user.users if p.target is aten.mm.default and p.args[1] is rows)
        elif user.target is aten.mm.default:
            left = operand(user)
            if left.target is aten.t.default and left.args[0] is rows:
                yield user


def _is_faster(product: fx.Node) -> bool:
    """Whether one sum of the inputs reads less than two of the results."""
    n_inputs, n_results = tensor_of(operand(product, 1)).shape
    return n_inputs < 2 * n_results


def _multiply_sums(
    graph: fx.Graph,
    linear: _WeightedSum,
    summed: fx.Node,
    gradients: list[tuple[fx.Node, fx.Node]],
) -> None:
    """The result and the gradients as products with the summed rows."""
    rows, weight = (operand(linear.gather.table, i) for i in range(2))
    with graph.inserting_before(linear.node):
        result = call_like(graph, aten.mm.default, (summed, weight), linear.node)
    linear.node.replace_all_uses_with(result)
    for node, of_result in gradients:
        is_by_rows = node.args[1] is rows  # the weight is [results, inputs]
        left, right = (of_result, summed) if is_by_rows else (summed, of_result)
        with graph.inserting_before(node):
            left = call_like(graph, aten.t.default, (left,), node)
            gradient = call_like(graph, aten.mm.default, (left, right), node)
        node.replace_all_uses_with(gradient)


def _summed(graph: fx.Graph, linear: _WeightedSum, rows: fx.Node, device: torch.device) -> fx.Node:
    """The weighted sum of other rows."""
    node, segments = linear.node, linear.segments
    with graph.inserting_before(node):
        source = gathered_rows(graph, rows, linear.gather, node)
        if linear.scale is not None:
            source = call_like(graph, aten.mul.Tensor, (linear.scale, source), node)
        n_rows = n_rows_of(node)
        return summed_by_segment(
            graph, source, segments.index, n_rows, node, device, wraps=segments.wraps
        )


def gathered_rows(graph: fx.Graph, table: fx.Node, gather: Gather, like: fx.Node) -> fx.Node:
    """Rows of another table, gathered by an equal index."""
    if gather.wraps:
        return call_like(graph, aten.index.Tensor, (table, [gather.index]), like)
    return call_like(graph, aten.index_select.default, (table, 0, gather.index), like)


def summed_by_segment(
    graph: fx.Graph,
    source: fx.Node,
    index: fx.Node,
    n_rows: int,
    like: fx.Node,
    device: torch.device,
    *,
    wraps: bool,
) -> fx.Node:
    """Rows added up to `n_rows` sums; with `wraps`, negative indices count from the end."""
    value = tensor_of(source)
    shape = [n_rows, *features_of(source)]
    made = {"dtype": value.dtype, "device": device}
    zeros = graph.call_function(aten.full.default, (shape, 0), made)
    zeros.meta = {**like.meta, "val": value.new_empty(shape)}
    if wraps:
        return call_like(graph, aten.index_put.default, (zeros, [index], source, True), like)
    return call_like(graph, aten.index_add.default, (zeros, 0, index, source), like)
