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
    for node in calls:
        _inline(step.graph, node, _FORMS[node.target])
    return share_common(step) if calls else step


def _inline(graph: fx.Graph, node: fx.Node, function: Callable) -> None:
    """Put the operations of a function in the place of its call."""
    operands = [a for a in node.args if isinstance(a, fx.Node)]

    def run(*tensors: Tensor) -> list[Tensor]:
        values = dict(zip(operands, tensors, strict=True))
        return list(function(*(values.get(a, a) for a in node.args)))  # pyright: ignore[reportArgumentType, reportCallIssue]

    body = traced(run, *(a.meta["val"] for a in operands)).graph
    inputs = [n for n in body.nodes if n.op == "placeholder"]
    copies = dict(zip(inputs, operands, strict=True))
    before = set(graph.nodes)
    with graph.inserting_before(node):
        results = graph.graph_copy(body, copies)
    for made in graph.nodes:
        if made not in before:
            made.meta[ORIGIN] = node.meta.get(ORIGIN)
    for getter in list(node.users):
        getter.replace_all_uses_with(results[getter.args[1]])  # pyright: ignore[reportIndexIssue, reportArgumentType, reportOptionalSubscript]
        graph.erase_node(getter)
    graph.erase_node(node)
