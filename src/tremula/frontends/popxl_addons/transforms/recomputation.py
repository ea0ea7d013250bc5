"""Gradient graphs that compute the forward graph again instead of taking its tensors."""

import popxl
from popxl import ops
from popxl.transforms import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from tremula.frontends.popxl_addons.graphs.graph import GraphWithNamedArgs
from tremula.frontends.popxl_addons.named.tensors import TensorMap
from tremula.frontends.popxl_addons.utils import suffix_graph_name


def add_recompute_inputs(
    grad_info: GradGraphInfo,
) -> tuple[TensorMap, TensorMap, list[ExpectedConnection]]:
    """Inputs of the graph that is open, for a gradient that computes the forward graph again.

    They are given by input of the forward graph, and by input of the gradient graph for gradients;
    and the connections of all of them, in order.
    """
    kinds = ExpectedConnectionType
    grads, expected = {}, []
    for t, e in zip(grad_info.graph.inputs, grad_info.expected_inputs, strict=False):
        if e.connection_type is kinds.FwdGrad:
            grads[t] = input_like(t)
            expected.append(e)
    inputs = {t: input_like(t) for t in grad_info.forward_graph.inputs}
    expected += [ExpectedConnection(kinds.Fwd, t) for t in inputs]
    return inputs, grads, expected


def recompute_graph(grad_graph: GraphWithNamedArgs) -> GraphWithNamedArgs:
    """A gradient graph that calls the forward graph again: it needs that one's inputs alone."""
    info = grad_graph.grad_graph_info
    forward: popxl.Graph = info.forward_graph
    outer = forward.ir.create_empty_graph(suffix_graph_name(info.graph.name, "recomp"))
    with outer, popxl.in_sequence(True):
        inputs, grads, expected = add_recompute_inputs(info)
        args = {t: input_like(t, True) for t in grad_graph.args.tensors}
        others = {
            t: input_like(t, t in info.graph.by_ref_inputs)
            for t in info.graph.inputs[len(info.expected_inputs) :]
            if t not in args
        }
        call = ops.call_with_info(forward, inputs_dict=inputs)
        values = {**grads, **info.inputs_dict(call), **args, **others}
        for t in ops.call(info.graph, inputs_dict=values):
            popxl.graph_output(t)
    made = GradGraphInfo(outer, forward, tuple(expected), info.expected_outputs)
    return GraphWithNamedArgs(outer, grad_graph.args.remap({**args, **others}), made)


def input_like(t: popxl.Tensor, by_ref: bool = False) -> popxl.Tensor:
    """An input of the current graph for such a tensor."""
    return popxl.graph_input(t.shape, t.dtype, t.name.replace("/", "_"), by_ref, t.meta_shape)
