"""Graphs of captured steps: `torch.fx` graphs to which nodes are added in less time."""

from typing import Any

from torch import fx


class StepGraph(fx.Graph):
    """A graph whose nodes get their arguments after they are made.

    `fx.Graph.create_node` looks through the arguments of every new node for symbolic numbers, which
    takes longer than all the rest. Steps have fixed shapes, so they hold no such numbers.
    """

    def create_node(
        self,
        op: str,
        target: fx.node.Target,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any | None = None,  # noqa: ANN401 - as in fx.Graph
    ) -> fx.Node:
        if op != "call_function":
            return super().create_node(op, target, args, kwargs, name, type_expr)
        node = super().create_node(op, target, None, None, name, type_expr)
        if args:
            node.args = args
        if kwargs:
            node.kwargs = kwargs
        return node


def check_order(graph: fx.Graph) -> None:
    """Raise what `fx.Graph.lint` raises if a node reads one that is behind it or not in the graph.

    That is what a pass can get wrong; it takes a quarter of the time of `lint`.
    """
    seen: set[fx.Node] = set()
    for node in graph.nodes:
        if not seen.issuperset(node.all_input_nodes):
            graph.lint()
        seen.add(node)
