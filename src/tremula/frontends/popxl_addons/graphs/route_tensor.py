"""Tensors of outer graphs as inputs of inner ones, through all calls on the way."""

from collections.abc import Iterable, MutableMapping

import popxl
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op

Routed = MutableMapping[Graph, popxl.Tensor]  # the input that a tensor is in each graph
Modified = bool | Iterable[object]


def is_subgraph(parent: Graph, subgraph: Graph) -> bool:
    """Whether a graph is another, or is called by it, directly or not."""
    return bool(called_graph_paths(parent, subgraph))


def called_graph_paths(parent_graph: Graph, subgraph: Graph) -> set[tuple[Graph, ...]]:
    """All ways of calls from a graph to another, as graphs from the first to the last."""
    paths: set[tuple[Graph, ...]] = set()
    waiting: list[tuple[Graph, ...]] = [(parent_graph,)]
    while waiting:
        path = waiting.pop()
        if path[-1] is subgraph:
            paths.add(path)
        waiting += [(*path, called) for called in path[-1].called_graphs]
    return paths


def connect_call_op(
    op: Op, tensor: popxl.Tensor, input_tensors: Routed, modified: Modified
) -> None:
    """Pass a tensor of its graph to a call: as an input it has, or as one more of the graph.

    `input_tensors` says which inputs graphs have for the tensor already, and gets the new one.
    """
    _connect(op, "Call", tensor, input_tensors, modified)


def connect_loop_op(
    op: Op, tensor: popxl.Tensor, input_tensors: Routed, modified: Modified
) -> None:
    """Pass a tensor of its graph to a loop, whose rounds all read the same one."""
    _connect(op, "Loop", tensor, input_tensors, modified)


def _connect(
    op: Op, kind: str, tensor: popxl.Tensor, input_tensors: Routed, modified: Modified
) -> None:
    if op.kind != kind:
        raise ValueError(
            f"A tensor can be routed through calls and loops: expected a {kind}, got {op.kind}"
        )
    called: Graph = op.graphs[0]
    inner = input_tensors.get(called)
    if inner is None:
        inner = _passed_already(op, called, tensor)
        inner = _new_input(called, tensor, modified) if inner is None else inner
        input_tensors[called] = inner
    index = called.inputs.index(inner)
    if index >= len(op.inputs):
        op.inputs.append(tensor)
        op.layout = (*op.layout, (str(index), index))
        tensor.uses += 1
    if _is_modified(modified):
        op.attributes["modified"] |= {index}
    op.graph.changed()


def _passed_already(op: Op, called: Graph, tensor: popxl.Tensor) -> popxl.Tensor | None:
    """The input that a call passes the tensor to, in each round of a loop the same."""
    n_carried = len(op.outputs) if op.kind == "Loop" else 0
    for i, t in enumerate(op.inputs[: len(called.inputs)]):
        if t == tensor and i >= n_carried:
            return called.inputs[i]
    return None


def _new_input(graph: Graph, tensor: popxl.Tensor, modified: Modified) -> popxl.Tensor:
    with graph:
        name = tensor.name.replace("/", "_")
        by_ref = _is_modified(modified)
        return popxl.graph_input(tensor.shape, tensor.dtype, name, by_ref, tensor.meta_shape)


def _is_modified(modified: Modified) -> bool:
    return modified if isinstance(modified, bool) else any(True for _ in modified)


def connect_tensor_to_ops_on_path(
    path: tuple[Graph, ...], from_tensor: popxl.Tensor, input_tensors: Routed, modified: Modified
) -> None:
    """Pass a tensor from its graph through the graphs of a path, by all calls on the way."""
    outer = from_tensor
    for called in path:
        for op in outer.graph.ops:
            if called in op.graphs:
                connect = connect_loop_op if op.kind == "Loop" else connect_call_op
                connect(op, outer, input_tensors, modified)
        outer = input_tensors[called]


def route_tensor_into_graph(
    tensor: popxl.Tensor, graph: Graph | None = None, modified: Modified = False
) -> popxl.Tensor:
    """The input of a graph that is a tensor of a graph that calls it, directly or not.

    Every call on the way gets the input too, so that all of them pass the same tensor. With
    `modified`, what the graph writes to it, the tensor has.
    """
    inner: Graph = popxl.gcg() if graph is None else graph
    if tensor in inner:
        return tensor
    paths = called_graph_paths(tensor.graph, inner)
    if not paths:
        raise ValueError(
            f"{tensor!r} is not in the graph {inner.name}. Additionally, it is not in a known"
            " parent graph, so that it cannot be moved into the graph: call the graph first"
        )
    routed: dict[Graph, popxl.Tensor] = {}
    for path in sorted(paths, key=len, reverse=True):
        connect_tensor_to_ops_on_path(path[1:], tensor, routed, modified)
    return routed[inner]
