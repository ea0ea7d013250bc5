"""Pass: the part of a training step that runs per micro-batch, without the weight update."""

import torch
from torch import fx

from tremula.ir.graphs import StepGraph
from tremula.ir.nodes import schema_name
from tremula.ir.ops.markers import MARKERS
from tremula.ir.passes.clean import drop_dead
from tremula.ir.step import HYPER, PARAMETER, STATE, CapturedStep

_KEPT_MARKERS = {"tremula::print_tensor"}


def micro_batch_part(step: CapturedStep) -> CapturedStep:
    """Inputs → outputs, gradients, written buffers; new weights are left to the update."""
    results = [
        (slot, node)
        for slot, node in zip(step.outputs, step.results(), strict=True)
        if not (step.training and slot.kind in (PARAMETER, STATE, HYPER))
    ]
    graph = StepGraph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in _needed(step, [node for _, node in results]):
        copied[node] = graph.node_copy(node, copied.__getitem__)
    graph.output([copied[node] for _, node in results])
    part = step.with_graph(graph, outputs=tuple(slot for slot, _ in results))
    return _without_unused_states(drop_dead(part))


def _needed(step: CapturedStep, results: list[fx.Node]) -> list[fx.Node]:
    """Inputs, what prints, and what results are computed from, in the order of the graph."""
    needed = set(results)
    nodes = [node for node in step.graph.nodes if node.op != "output"]
    for node in reversed(nodes):
        is_kept = node.op == "placeholder" or schema_name(node) in _KEPT_MARKERS
        if is_kept or node in needed:
            needed.add(node)
            needed.update(node.all_input_nodes)
    return [node for node in nodes if node in needed]


def _without_unused_states(step: CapturedStep) -> CapturedStep:
    inputs = []
    for slot, node in zip(step.inputs, step.placeholders(), strict=True):
        if slot.kind == STATE and not node.users:
            step.graph.erase_node(node)
        else:
            inputs.append(slot)
    return step.with_graph(step.graph, inputs=tuple(inputs))


def drop_markers(step: CapturedStep) -> CapturedStep:
    """The host has no use for marks that speak to the tile compiler."""
    for node in list(step.graph.nodes):
        name = schema_name(node)
        if name in MARKERS and name not in _KEPT_MARKERS:
            node.replace_all_uses_with(node.args[0])
            step.graph.erase_node(node)
    return step


def on_device(step: CapturedStep, device: torch.device) -> CapturedStep:
    """Create the graph's new tensors on the device it runs on."""
    for node in step.graph.nodes:
        if node.op == "call_function" and _makes_tensors(node):
            node.kwargs = {**node.kwargs, "device": device}
    constants = {name: value.to(device) for name, value in step.constants.items()}
    return step.with_graph(step.graph, constants=constants)


def _makes_tensors(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None or not any(a.name == "device" for a in schema.arguments):
        return False
    return "device" in node.kwargs or not node.all_input_nodes
