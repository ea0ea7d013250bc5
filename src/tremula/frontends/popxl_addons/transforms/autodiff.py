"""Gradients of graphs with names, also as running means over micro-batches."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

import popxl
from popxl import ops
from popxl.transforms import ExpectedConnection, GradGraphInfo
from popxl.transforms import autodiff as popxl_autodiff
from tremula.frontends.popxl.transforms.autodiff import add_output
from tremula.frontends.popxl_addons.graphs.graph import (
    GraphWithNamedArgs,
    infos_by_graph,
)
from tremula.frontends.popxl_addons.named.dot_tree import sanitise
from tremula.frontends.popxl_addons.named.factories import (
    NamedVariableFactories,
    VariableFactory,
    add_variable_input,
)
from tremula.frontends.popxl_addons.named.replica_groupings import NamedReplicaGrouping
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.notes import notes_of
from tremula.frontends.popxl_addons.transforms.recomputation import recompute_graph

Infos = Mapping[Any, GradGraphInfo | GraphWithNamedArgs]  # by graph, or what has one
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
    """The gradient graph of a graph; of graphs it calls, the gradients their modules give."""
    info = _differentiated(graph, grads_provided, grads_required, called_graphs_grad_info)
    return GraphWithNamedArgs.from_grad_graph(info)


def _differentiated(
    graph: GraphWithNamedArgs,
    provided: Iterable[popxl.Tensor] | None,
    required: Iterable[popxl.Tensor] | None,
    known: Infos | None,
) -> GradGraphInfo:
    own = own_gradient(graph.graph)
    if own is not None:
        return own
    known_infos = {**infos_by_graph(graph.called_graphs_grad_info), **infos_by_graph(known)}
    infos = {**_called_infos(graph.graph, known_infos), **known_infos}
    return popxl_autodiff(graph.graph, provided, required, infos)


def _called_infos(graph: popxl.Graph, known: Infos) -> dict[popxl.Graph, GradGraphInfo]:
    """Gradients of graphs called, directly or not, that are not to be taken apart."""
    result: dict[popxl.Graph, GradGraphInfo] = {}
    marked = notes_of(graph.ir).get("recomputed", {})
    for called in graph.called_graphs:
        if called in known:
            continue
        own = own_gradient(called)
        if own is not None:
            result[called] = own
            continue
        result.update(_called_infos(called, known))
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


def own_gradient(graph: popxl.Graph) -> GradGraphInfo | None:
    """The gradient graph that a module's `build_grad` makes, made once; None without one."""
    notes = notes_of(graph.ir)
    forward: GraphWithNamedArgs | None = notes.get("own_gradients", {}).get(graph)
    if forward is None:
        return None
    made = notes.setdefault("own_gradient_infos", {})
    if graph not in made:
        sites = graph.call_sites
        n_before = len(graph.outputs)
        floats = [t for t in graph.inputs if t.dtype.is_float]
        forward.autodiff(grads_required=floats, method="build_grad", force=True)
        for op in sites:  # calls that were there before the graph got outputs
            for t in graph.outputs[n_before:]:
                add_output(op, t)
    return made[graph]


# -- accumulation ----------------------------------------------------------------------------------


def autodiff_with_accumulation(
    graph: GraphWithNamedArgs,
    tensors_to_accumulate_grads: Iterable[popxl.Tensor],
    grads_provided: Iterable[popxl.Tensor] | None = None,
    grads_required: Iterable[popxl.Tensor] | None = None,
    called_graphs_grad_info: Infos | None = None,
    replica_groupings: NamedReplicaGrouping | None = None,
) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
    """The gradient graph of a graph, with running means of some gradients instead of outputs.

    The means are arguments `accum.<name>`, and `mean_accum_counter` counts: set it to zero to start
    again. Other gradients, `grads_required`, are outputs. Returns factories of the means, too.
    """
    summed = list(tensors_to_accumulate_grads)
    others = [t for t in (grads_required or ()) if t not in summed]
    required = [*others, *summed]
    info = _differentiated(graph, grads_provided, required, called_graphs_grad_info)
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
    expected = [e for e in info.expected_outputs if e.fwd_tensor in others]
    info.graph.set_outputs([by[e.fwd_tensor] for e in expected])
    info = GradGraphInfo(info.graph, graph.graph, info.expected_inputs, tuple(expected))
    return (
        NamedVariableFactories.from_dict(factories),
        GraphWithNamedArgs(info.graph, NamedTensors.from_dict(args), info),
    )


def remap_grad_info(
    grad_info: GradGraphInfo, forward_graph: popxl.Graph, backward_graph: popxl.Graph
) -> GradGraphInfo:
    """The connections of a gradient graph, for other graphs with inputs and outputs like its own.

    A connection to input or output i of the first forward graph becomes one to that of the other.
    """
    old = grad_info.forward_graph

    def moved(e: ExpectedConnection) -> ExpectedConnection:
        for before, after in ((old.inputs, forward_graph.inputs),
                              (old.outputs, forward_graph.outputs)):  # fmt: skip
            if e.fwd_tensor in before:
                return ExpectedConnection(e.connection_type, after[before.index(e.fwd_tensor)])
        raise ValueError(f"{e.fwd_tensor!r} is neither an input nor an output of {old}")

    return GradGraphInfo(
        backward_graph,
        forward_graph,
        tuple(moved(e) for e in grad_info.expected_inputs),
        tuple(moved(e) for e in grad_info.expected_outputs),
    )
