"""Gradients of graphs with names: accumulated over micro-batches, or from inputs alone."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

import popxl
from popxl import ops
from popxl.transforms import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from popxl.transforms import autodiff as popxl_autodiff
from tremula.frontends.popxl_addons.graphs.graph import GraphWithNamedArgs
from tremula.frontends.popxl_addons.named.dot_tree import sanitise
from tremula.frontends.popxl_addons.named.factories import (
    NamedVariableFactories,
    VariableFactory,
    add_variable_input,
)
from tremula.frontends.popxl_addons.named.tensors import NamedReplicaGrouping, NamedTensors
from tremula.frontends.popxl_addons.notes import notes_of

Infos = Mapping[popxl.Graph, GradGraphInfo]
COUNTER = "mean_accum_counter"


def recomputed(graph: GraphWithNamedArgs) -> GraphWithNamedArgs:
    """Say that gradients of this graph's callers compute it again instead of keeping its values."""
    notes_of(graph.graph.ir).setdefault("recomputed", {}).setdefault(graph.graph, None)
    return graph


def autodiff(
    graph: GraphWithNamedArgs,
    grads_provided: Iterable[popxl.Tensor] | None = None,
    grads_required: Iterable[popxl.Tensor] | None = None,
    called_graphs_grad_info: Infos | None = None,
) -> GraphWithNamedArgs:
    """The gradient graph of a graph; of graphs it calls, the gradients they say themselves."""
    info = _differentiated(graph.graph, grads_provided, grads_required, called_graphs_grad_info)
    return GraphWithNamedArgs.from_grad_graph(info)


def _differentiated(
    graph: popxl.Graph,
    provided: Iterable[popxl.Tensor] | None,
    required: Iterable[popxl.Tensor] | None,
    known: Infos | None,
) -> GradGraphInfo:
    own = own_gradient(graph)
    if own is not None:
        return own
    result = {**_called_infos(graph), **(known or {})}
    return popxl_autodiff(graph, provided, required, result)


def _called_infos(graph: popxl.Graph) -> dict[popxl.Graph, GradGraphInfo]:
    """Gradients of graphs called, directly or not, that are not to be taken apart."""
    result: dict[popxl.Graph, GradGraphInfo] = {}
    marked = notes_of(graph.ir).get("recomputed", {})
    for called in graph.called_graphs:
        own = own_gradient(called)
        if own is not None:
            result[called] = own
            continue
        result.update(_called_infos(called))
        if called in marked:
            if marked[called] is None:
                info = popxl_autodiff(called, None, _varying_inputs(called), result)
                graph_of = recompute_graph(GraphWithNamedArgs.from_grad_graph(info))
                marked[called] = graph_of.grad_graph_info
            result[called] = marked[called]
    return result


def _varying_inputs(graph: popxl.Graph) -> list[popxl.Tensor]:
    """Inputs that gradients are wanted for: floats that are not constants in all calls."""
    return [
        t
        for i, t in enumerate(graph.inputs)
        if t.dtype.is_float
        and not all(isinstance(op.inputs[i], popxl.Constant) for op in graph.call_sites)
    ]


# -- gradients that modules say themselves ---------------------------------------------------------


def own_gradient(graph: popxl.Graph) -> GradGraphInfo | None:
    """The gradient graph that a module's `build_grad` makes, made once; None without one."""
    makers = notes_of(graph.ir).get("own_gradients", {})
    if graph not in makers:
        return None
    made = notes_of(graph.ir).setdefault("own_gradient_infos", {})
    if graph not in made:
        made[graph] = _build_grad(graph, *makers[graph])
    return made[graph]


def _build_grad(
    graph: popxl.Graph, module: Any, aux: dict[str, popxl.Tensor], variables: NamedTensors
) -> GradGraphInfo:
    base = graph.name.split("_subgraph(")[0]
    own = graph.ir.create_empty_graph(f"{base}_grad")
    expected = []
    with own:
        grads = []
        for t in graph.outputs:
            grads.append(popxl.graph_input(t.shape, t.dtype, f"Gradient___{t.name}"))
            expected.append(ExpectedConnection(ExpectedConnectionType.FwdGrad, t))
        module.aux = {}
        for name, t in aux.items():
            module.aux[name] = popxl.graph_input(t.shape, t.dtype, name, meta_shape=t.meta_shape)
            expected.append(ExpectedConnection(ExpectedConnectionType.Fwd, t))
            if t not in graph.inputs and t not in graph.outputs:
                graph.mark_as_output(t)
        module.var_grad = {}
        result = module.build_grad(*grads)
        named = variables.to_dict()
        arguments = [t for t in graph.inputs if t not in named.values() and t.dtype.is_float]
        given = [result] if isinstance(result, popxl.Tensor) else list(result or ())
        if len(given) != len(arguments):
            raise ValueError(
                f"build_grad of {type(module).__name__} must return a gradient for each of its"
                f" {len(arguments)} arguments of floats, got {len(given)}"
            )
        pairs = list(zip(arguments, given, strict=True))
        pairs += [(named[name], grad) for name, grad in module.var_grad.items()]
        for _, grad in pairs:
            popxl.graph_output(grad)
    module.aux, module.var_grad = {}, {}
    outputs = [ExpectedConnection(ExpectedConnectionType.FwdGrad, t) for t, _ in pairs]
    return GradGraphInfo(own, graph, tuple(expected), tuple(outputs))


# -- accumulation ----------------------------------------------------------------------------------


def autodiff_with_accumulation(
    graph: GraphWithNamedArgs,
    tensors_to_accumulate_grads: Iterable[popxl.Tensor],
    grads_required: Iterable[popxl.Tensor] | None = None,
    replica_groupings: NamedReplicaGrouping | None = None,
    called_graphs_grad_info: Infos | None = None,
) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
    """The gradient graph of a graph, with running means of some gradients instead of outputs.

    The means are arguments `accum.<name>`, and `mean_accum_counter` counts: set it to zero to start
    again. Other gradients, `grads_required`, are outputs. Gives factories of the means, too.
    """
    summed = list(tensors_to_accumulate_grads)
    others = [t for t in (grads_required or ()) if t not in summed]
    info = _differentiated(graph.graph, None, [*others, *summed], called_graphs_grad_info)
    groups = {} if replica_groupings is None else replica_groupings.to_dict()
    names = {t: name for name, t in graph.args.to_dict().items()}
    args: dict[str, popxl.Tensor] = {}
    factories: dict[str, VariableFactory] = {}

    def add(name: str, like: popxl.Tensor | None = None) -> popxl.Tensor:
        shape, dtype = ((), popxl.float32) if like is None else (like.shape, like.dtype)
        group = groups.get(name.removeprefix("accum."))
        zeros = partial(np.zeros, shape)
        args[name], factories[name] = add_variable_input(name, zeros, dtype, True, group)
        return args[name]

    by = {e.fwd_tensor: t for e, t in zip(info.expected_outputs, info.graph.outputs, strict=True)}
    with info.graph, popxl.in_sequence(True):
        counter, n_before = add(COUNTER), len(info.graph.ops)
        with popxl.in_sequence(False):
            for t in summed:
                name = f"accum.{names.get(t) or sanitise(t.name)}"
                ops.var_updates.accumulate_mean_(add(name, t), by[t], counter)
        # A gradient is needed no longer than until it is added; nothing else orders the sums.
        info.graph.move_behind_producers(info.graph.ops[n_before:])
        ops.var_updates.accumulate_(counter, popxl.constant(1, popxl.float32))
    kept = [e for e in info.expected_outputs if e.fwd_tensor in others]
    info.graph.set_outputs([by[e.fwd_tensor] for e in kept])
    info = GradGraphInfo(info.graph, graph.graph, info.expected_inputs, tuple(kept))
    return (
        NamedVariableFactories.from_dict(factories),
        GraphWithNamedArgs(info.graph, NamedTensors.from_dict(args), info),
    )


# -- recomputation ---------------------------------------------------------------------------------


def recompute_graph(grad_graph: GraphWithNamedArgs) -> GraphWithNamedArgs:
    """A gradient graph that calls the forward graph again: it needs that one's inputs alone."""
    info = grad_graph.grad_graph_info
    forward: popxl.Graph = info.forward_graph
    outer = forward.ir.create_empty_graph(f"{info.graph.name.split('_subgraph(')[0]}_recomp")
    expected, given = [], {}
    with outer, popxl.in_sequence(True):
        for t, e in zip(info.graph.inputs, info.expected_inputs, strict=False):
            if e.connection_type is ExpectedConnectionType.FwdGrad:
                given[t] = _input_like(t)
                expected.append(e)
        inputs = {t: _input_like(t) for t in forward.inputs}
        expected += [ExpectedConnection(ExpectedConnectionType.Fwd, t) for t in inputs]
        named = {t: _input_like(t, True) for t in grad_graph.args.tensors}
        call = ops.call_with_info(forward, inputs_dict=inputs)
        for t, e in zip(info.graph.inputs, info.expected_inputs, strict=False):
            if e.connection_type is ExpectedConnectionType.Fwd:
                given[t] = call.graph_to_parent(e.fwd_tensor)
        for t in ops.call(info.graph, inputs_dict={**given, **named}):
            popxl.graph_output(t)
    made = GradGraphInfo(outer, forward, tuple(expected), info.expected_outputs)
    return GraphWithNamedArgs(outer, grad_graph.args.remap(named), made)


def _input_like(t: popxl.Tensor, by_ref: bool = False) -> popxl.Tensor:
    return popxl.graph_input(t.shape, t.dtype, t.name.replace("/", "_"), by_ref, t.meta_shape)
