"""Attention with dropout as ATen operations: what a CPU runs, and its passes and Inductor fuse."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.host.compile_isolation import traced
from tremula.ir.ops.attention import spelled_out, spelled_out_backward
from tremula.ir.origin import ORIGIN
from tremula.ir.passes.clean import share_common
from tremula.ir.step import CapturedStep

_FORMS: dict[Any, Callable] = {
    torch.ops.tremula.attention.default: spelled_out,
    torch.ops.tremula.attention_backward.default: spelled_out_backward,
}


def spell_out_attention(step: CapturedStep) -> CapturedStep:
    """Replace each `tremula::attention`; both directions share the weights of attention."""
    calls = [node for node in step.graph.nodes if node.target in _FORMS]
    bodies: dict[tuple, fx.Graph] = {}  # layers are alike: each kind of call is traced once
    for node in calls:
        key = _kind_of(node)
        if key not in bodies:
            bodies[key] = _body(node)
        _inline(step.graph, node, bodies[key])
    return share_common(step) if calls else step


def _operands(node: fx.Node) -> list[fx.Node]:
    """The operands that are tensors, each as often as it is one."""
    return [a for a in node.args if isinstance(a, fx.Node)]


def _kind_of(node: fx.Node) -> tuple:
    values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in node.args]
    kinds = [(v.shape, v.stride(), v.dtype) if isinstance(v, Tensor) else v for v in values]
    return node.target, tuple(kinds)


def _body(node: fx.Node) -> fx.Graph:
    """The operations of a call, as a graph of its operands."""
    function, arguments = _FORMS[node.target], node.args

    def run(*tensors: Tensor) -> list[Tensor]:
        remaining = iter(tensors)
        values = (next(remaining) if isinstance(a, fx.Node) else a for a in arguments)
        return list(function(*values))

    # One tensor may be several operands: each has a separate stand-in.
    stand_ins = [torch.empty_like(a.meta["val"]) for a in _operands(node)]
    return traced(run, *stand_ins).graph


def _inline(graph: fx.Graph, node: fx.Node, body: fx.Graph) -> None:
    """Put the operations of a body in the place of a call."""
    operands = _operands(node)
    inputs = [n for n in body.nodes if n.op == "placeholder"]
    copies = dict(zip(inputs, operands, strict=True))
    made = node.prev
    with graph.inserting_before(node):
        results = graph.graph_copy(body, copies)
    while (made := made.next) is not node:
        made.meta[ORIGIN] = node.meta.get(ORIGIN)
    for getter in list(node.users):
        getter.replace_all_uses_with(results[getter.args[1]])  # pyright: ignore[reportIndexIssue, reportArgumentType, reportOptionalSubscript, reportCallIssue]
        graph.erase_node(getter)
    graph.erase_node(node)
