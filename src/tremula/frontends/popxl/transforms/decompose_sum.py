"""Sums of many tensors as one addition after the other, each when its operand is there."""

from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import ROWS
from tremula.frontends.popxl.core.tensor import Tensor


def decompose_sum(graph: Graph) -> Graph:
    """Replace each sum in a graph by additions that follow the operations making its operands."""
    graph.ir.check_open()
    for op in [op for op in graph.ops if op.kind == "Sum"]:
        _decompose(graph, op)
    return graph


def _decompose(graph: Graph, op: Op) -> None:
    index: dict[Op | None, int] = {made: i for i, made in enumerate(graph.ops)}
    operands = sorted(op.inputs, key=lambda t: index.get(t.producer, -1))
    (result,) = op.outputs
    graph.remove_op(op)
    total = operands[0]
    for i, t in enumerate(operands[1:], 1):
        is_last = i == len(operands) - 1
        out = result if is_last else graph.new_tensor(result.name, result.shape, result.dtype)
        total = _insert_add(graph, total, t, out, op)


def _insert_add(graph: Graph, total: Tensor, t: Tensor, out: Tensor, like: Op) -> Tensor:
    add = Op(graph, ROWS["add"], [total, t], (("lhs", 0), ("rhs", 1)), {})
    add.ipu, add.tile_set, add.stage = like.ipu, like.tile_set, like.stage
    add.outputs, out.producer = [out], add
    graph.add_op(add)
    graph.move_behind_producers([add])
    return out
