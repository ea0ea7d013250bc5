"""Tensors of outer graphs as inputs of inner ones, through all calls on the way."""

import popxl
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl_addons.notes import notes_of


def route_tensor_into_graph(
    t: popxl.Tensor, into: popxl.Graph | None = None, modified: bool = False
) -> popxl.Tensor:
    """The input of a graph that is tensor `t` of a graph that calls it, directly or not.

    Every call on the way gets the input too, so that all of them pass the same tensor.
    """
    graph: popxl.Graph = popxl.gcg() if into is None else into
    if t in graph:
        return t
    sites = list(graph.call_sites)
    if not sites:
        raise ValueError(f"Nothing calls {graph}, so {t.id} cannot reach it")
    routed = notes_of(graph.ir).setdefault("routed", {})
    if (graph, t) in routed:
        return routed[graph, t]
    with graph:
        name = t.name.replace("/", "_")
        inner = popxl.graph_input(t.shape, t.dtype, name, modified, t.meta_shape)
    routed[graph, t] = inner
    for op in sites:
        _add_input(op, route_tensor_into_graph(t, op.graph, modified))
    return inner


def _add_input(op: Op, t: popxl.Tensor) -> None:
    """One more input of a call, for the input that its graph got."""
    if op.kind not in ("Call", "Loop"):
        raise ValueError(f"A tensor can be routed through calls and loops, not through {op.kind}")
    number = len(op.inputs)
    op.inputs.append(t)
    op.layout = (*op.layout, (str(number), number))
    t.uses += 1
    op.graph.changed()
