"""How often things happen in a run: executions of graphs, transfers of streams, operations."""

from collections import Counter

from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.streams import Stream


def executions(ir: Ir) -> dict[Graph, int]:
    """How many times each graph runs, at most: both branches of a condition are counted."""
    counts: Counter[Graph] = Counter({ir.main_graph: 1})
    for graph in called_order(ir):
        n = counts[graph]
        for op in graph.ops:
            times = n * op.attributes.get("repeat_count", 1)
            for called in op.graphs:
                counts[called] += times
    return dict(counts)


def called_order(ir: Ir) -> list[Graph]:
    """Graphs that the main graph needs, each before those it calls."""
    result: dict[Graph, None] = {}

    def visit(graph: Graph) -> None:
        if graph in result:
            return
        for called in graph.called_graphs:
            visit(called)
        result[graph] = None

    visit(ir.main_graph)
    return list(reversed(result))


def n_operations(ir: Ir) -> int:
    """Operations that a run executes, on one replica."""
    return sum(n * len(graph.ops) for graph, n in executions(ir).items())


def transfers(ir: Ir) -> Counter[Stream]:
    """How many elements each stream moves in a run, for one replica."""
    result: Counter[Stream] = Counter()
    for graph, n in executions(ir).items():
        for op in graph.ops:
            if op.kind in {"HostLoad", "HostStore"}:
                result[op.attributes["stream"]] += n
    return result
