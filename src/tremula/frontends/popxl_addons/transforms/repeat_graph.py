"""A whole graph put into a loop."""

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.transforms.moving import clone_op, remove_ops


def repeat_graph(graph: popxl.Graph, repeat_count: int) -> popxl.Graph:
    """Run all operations of a graph several times: they move into the body of a loop in it.

    The graph, which may be the main graph, is changed in place. Its variables, constants and inputs
    stay and are passed to the body by reference. The body is returned; with a count of one or less
    nothing changes, and it is the graph itself.
    """
    if repeat_count <= 1:
        return graph
    operations = graph.ops
    made = {t for op in operations for t in op.outputs}
    outputs = [t for t in graph.outputs if t in made]
    if outputs:
        raise ValueError(
            f"{graph} cannot be repeated: its outputs {', '.join(t.id for t in outputs)} would be"
            " tensors of a loop's body"
        )
    body = graph.ir.create_empty_graph("repeat_graph")
    outside = dict.fromkeys(t for op in operations for t in op.inputs if t not in made)
    with body:
        tensors = {
            t: popxl.graph_input(t.shape, t.dtype, t.name.replace("/", "_"), True, t.meta_shape)
            for t in outside
        }
        moved = dict(tensors)
        clones = {op: clone_op(op, body, moved) for op in operations}
    for op, clone in clones.items():
        clone.after = [clones[other] for other in op.after if other in clones]
    remove_ops(graph, operations)
    with graph:
        ops.repeat(body, repeat_count, inputs_dict={tensors[t]: t for t in outside})
    return body
