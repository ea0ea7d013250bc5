"""Pass for Inductor on a GPU: products with tiny matrices become sums, which are fused.

Coupling two features of a few components each, as tensor products of equivariant networks do, is a
product of millions of rows with a matrix of 25 × 5, say. A library reads and writes each row for
it. Multiplied and summed by elements, it is part of the kernel that makes the rows.
"""

from math import prod

import torch
from torch import fx

from tremula.ir.nodes import operand
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_MAX_SIDE = 32  # of a small matrix: tensor cores need 16 and more to be faster
_MAX_LONG_SIDE = 256  # of one side of many matrices, such as the channels of an edge
_MIN_ROWS = 1 << 10  # fewer are a launch in any case


def sum_small_products(step: CapturedStep) -> CapturedStep:
    """Replace products of many rows with small matrices, of many small ones, and outer products."""
    for node in list(step.graph.nodes):
        if node.target in (aten.mm.default, aten.bmm.default) and _is_small(node):
            _replace(step.graph, node)
    return step


def _is_small(node: fx.Node) -> bool:
    """Whether a product moves more than it computes: many tiny ones, or many rows of one."""
    if node.meta["val"].dtype is not torch.float32:
        return False  # products of halves are rounded once, after the sum
    left, right = (operand(node, i).meta["val"].shape for i in range(2))
    (*batch, n_left, n_summed), n_right = left, right[-1]
    if n_summed == 1:
        return True  # nothing is summed
    if prod(batch) >= _MIN_ROWS:
        *others, longest = sorted((n_left, n_summed, n_right))
        return max(others) <= _MAX_SIDE and longest <= _MAX_LONG_SIDE
    short, long = sorted((n_left, n_right))
    return max(short, n_summed) <= _MAX_SIDE and prod(batch) * long >= _MIN_ROWS


def _replace(graph: fx.Graph, node: fx.Node) -> None:
    """Rows […, m, k, 1] times [k, n], summed over k."""
    left, right = operand(node), operand(node, 1)
    value = node.meta["val"]
    with graph.inserting_before(node):
        wide_left = _call(graph, aten.unsqueeze.default, left, -1)
        wide_right = _call(graph, aten.unsqueeze.default, right, -3)
        product = _call(graph, aten.mul.Tensor, wide_left, wide_right)
        if right.meta["val"].shape[-2] == 1:
            result = _call(graph, aten.squeeze.dim, product, -2)
        else:
            result = _call(graph, aten.sum.dim_IntList, product, [-2])
    result.meta = {**node.meta, "val": value}
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def _call(graph: fx.Graph, target: torch._ops.OpOverload, *args: object) -> fx.Node:
    made = graph.call_function(target, args)  # pyright: ignore[reportArgumentType]
    values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in args]
    made.meta["val"] = target(*values)
    return made
