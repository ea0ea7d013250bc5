"""Graphs of captured steps: `torch.fx` graphs to which nodes are added in less time."""

from collections.abc import Callable
from typing import Any

from torch import fx
from torch.fx.node import Target


class StepGraph(fx.Graph):
    """A graph whose nodes get their arguments after they are made.

    `fx.Graph.create_node` looks through the arguments of every new node for symbolic numbers, which
    takes longer than all the rest. Steps have fixed shapes, so they hold no such numbers.
    """

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any | None = None,  # noqa: ANN401 - as in fx.Graph
    ) -> fx.Node:
        if op != "call_function":
            return super().create_node(op, target, args, kwargs, name, type_expr)
        name = self._name_of(target) if name is None else name
        node = super().create_node(op, target, None, None, name, type_expr)
        if args or kwargs:
            _set_arguments(node, args or (), kwargs or {})
        return node

    def node_copy(
        self, node: fx.Node, arg_transform: Callable[[fx.Node], Any] = lambda node: node
    ) -> fx.Node:
        args, kwargs = fx.map_arg((node.args, node.kwargs), arg_transform)
        result = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        result.meta.update(node.meta)
        return result

    def _name_of(self, target: Target) -> str:
        """What the names of calls of an operation begin with."""
        known = _NAMES.get(id(target))
        if known is None:
            known = _NAMES[id(target)] = (target, self._target_to_str(target))
        return known[1]


_NAMES: dict[int, tuple[object, str]] = {}  # with the operation, so that its id stays its own


def _set_arguments(node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Both at once: each assignment would also look the node up in a table of its graph."""
    update = getattr(node, "_update_args_kwargs", None)  # PyTorch 2.5 and later
    if update is not None:
        update(args, kwargs)
        return
    node.args, node.kwargs = args, kwargs


def check_order(graph: fx.Graph) -> None:
    """Raise what `fx.Graph.lint` raises if a node reads one that is behind it or not in the graph.

    That is what a pass can get wrong; it takes a quarter of the time of `lint`.
    """
    seen: set[fx.Node] = set()
    for node in graph.nodes:
        if not seen.issuperset(node.all_input_nodes):
            graph.lint()
        seen.add(node)
