"""Operations taken from one graph and made again in another."""

from collections.abc import Iterable, MutableMapping

import popxl
from tremula.frontends.popxl.core.aliases import written_operands
from tremula.frontends.popxl.core.op import Op

TensorMap = MutableMapping[popxl.Tensor, popxl.Tensor]


def clone_op(op: Op, graph: popxl.Graph, tensors: TensorMap) -> Op:
    """A copy of an operation in another graph; `tensors` maps inputs, and gets the outputs."""
    clone = Op(
        graph, op.row, [tensors[t] for t in op.inputs], op.layout, dict(op.attributes), op.graphs
    )
    for setting in ("ipu", "has_ipu", "tile_set", "stage", "name", "source"):
        setattr(clone, setting, getattr(op, setting))
    for t in op.outputs:
        made = graph.new_tensor(t.name, t.shape, t.dtype, t.meta_shape)
        made.producer = clone
        clone.outputs.append(made)
        tensors[t] = made
    graph.add_op(clone)
    return clone


def remove_ops(graph: popxl.Graph, ops: Iterable[Op]) -> None:
    """Take operations, and the tensors they made, out of a graph; the last ones first."""
    for op in reversed(list(ops)):
        graph.remove_op(op)
        for t in op.outputs:
            graph.remove_tensor(t)


def written_tensors(op: Op) -> list[popxl.Tensor]:
    """Inputs that an operation changes: in place, or in a graph that it calls."""
    return [op.inputs[i] for i in sorted(written_operands(op))]
