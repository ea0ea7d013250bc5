"""Checkpoints: which tensors are stored for the backward pass; others are computed again."""

from collections.abc import Mapping, Sequence
from math import isqrt

import onnx

from tremula.frontends.onnx.table import newest_operator
from tremula.frontends.popart.builder.annotations import RECOMPUTE
from tremula.frontends.popart.builder.graph import values_of
from tremula.frontends.popart.enums import RecomputationType, RecomputeType

_DAMPING = 0.75  # PopART takes somewhat shorter intervals than are best for a chain


def checkpoints(
    graph: onnx.GraphProto, mode: RecomputationType, sizes: Mapping[str, int]
) -> frozenset[str]:
    """Tensors to store; empty if nothing is computed again."""
    marked = {
        name
        for node in graph.node
        if values_of(node).get(RECOMPUTE) == RecomputeType.Checkpoint
        for name in node.output
    }
    has_requests = any(values_of(n).get(RECOMPUTE) == RecomputeType.Recompute for n in graph.node)
    if has_requests:
        marked |= {
            name
            for node in graph.node
            if values_of(node).get(RECOMPUTE) != RecomputeType.Recompute
            for name in node.output
        }
    if mode is RecomputationType.Standard:
        marked |= standard_checkpoints(graph, sizes)
    elif mode is RecomputationType.NormOnly:
        marked |= _outside_norms(graph)
    elif mode is RecomputationType.RecomputeAll:
        marked |= set(graph.node[-1].output) if graph.node else set()
    return frozenset(marked)


def intervals(n_nodes: int, longest: int) -> list[tuple[int, int]]:
    """Stretches of length K, K-1, …, 1 over a schedule, then single nodes."""
    result, start, length = [], 0, max(longest, 1)
    while start < n_nodes:
        end = min(start + length, n_nodes)
        result.append((start, end))
        start, length = end, max(length - 1, 1)
    return result


def longest_interval(n_nodes: int) -> int:
    """PopART's K for a schedule of n nodes."""
    return int(_DAMPING * (isqrt(2 * n_nodes) - 1))


def standard_checkpoints(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> set[str]:
    """In each interval, the tensors alive where they take the fewest bytes."""
    nodes = list(graph.node)
    lives = _live_sets(nodes, {v.name for v in graph.output})
    result: set[str] = set()
    for start, end in intervals(len(nodes), longest_interval(len(nodes))):
        best = min(range(start, end), key=lambda i: (sum(sizes.get(n, 0) for n in lives[i]), i))
        result |= lives[best]
    return result


def _live_sets(nodes: Sequence[onnx.NodeProto], outputs: set[str]) -> list[set[str]]:
    """After each node, the results that a later node or the caller reads."""
    last_read: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.input:
            last_read[name] = index
    alive: set[str] = set()
    result = []
    for index, node in enumerate(nodes):
        alive |= {n for n in node.output if n in last_read or n in outputs}
        alive = {
            n for n in alive if last_read.get(n, -1) > index or n in outputs or n in node.output
        }
        result.append(set(alive))
    return result


def _outside_norms(graph: onnx.GraphProto) -> set[str]:
    """All results except those of norms and of the non-linearities right after them."""
    recomputed: set[str] = set()
    for node in graph.node:
        entry = newest_operator(node.domain, node.op_type)
        role = entry.role if entry is not None else ""
        follows = role == "activation" and any(name in recomputed for name in node.input)
        if role == "norm" or follows:
            recomputed |= set(node.output)
    if not recomputed:
        return set()
    return {name for node in graph.node for name in node.output} - recomputed
