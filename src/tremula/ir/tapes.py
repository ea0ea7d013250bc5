"""Tapes: calls that were recorded once, as nodes to add again for other tensors.

    new_mean = 0.9 * mean + 0.1 * grad       recorded for the first weight: three nodes
        inputs    mean, grad
        entries   mul(input 0, 0.9); mul(input 1, 0.1); add(entry 0, entry 1)

For the next weight of that shape the three nodes are copied, and nothing runs.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx
from torch._ops import OpOverload

from tremula.ir.fake_results import new_fake_like
from tremula.ir.nodes import is_view, written_arguments


@dataclass(frozen=True)
class CallTape:
    """The nodes that a function made, in their order, and which of them are its results."""

    inputs: tuple[fx.Node, ...]
    nodes: tuple[fx.Node, ...]
    gives: tuple[fx.Node, ...]

    @staticmethod
    def since(last: fx.Node, inputs: list[fx.Node], results: list[fx.Node]) -> "CallTape | None":
        """What was added behind a node; None if it is more than calls that make new tensors."""
        nodes = []
        node = last.next
        while node.op != "root":
            nodes.append(node)
            node = node.next
        known = {*inputs, *nodes}
        if not all(map(_is_simple, nodes)) or not known.issuperset(results):
            return None
        return CallTape(tuple(inputs), tuple(nodes), tuple(results))

    def play(self, graph: fx.Graph, inputs: list[fx.Node]) -> list[fx.Node]:
        """Add the nodes again, for other inputs; what else they read stays as it is."""
        other: dict[fx.Node, fx.Node] = dict(zip(self.inputs, inputs, strict=True))
        for node in self.nodes:
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: other.get(n, n))
            new = other[node] = graph.call_function(node.target, args, kwargs)  # pyright: ignore[reportArgumentType]
            new.meta.update(node.meta)
            new.meta["val"] = new_fake_like(node.meta["val"])
        return [other[node] for node in self.nodes]

    def results(self, nodes: list[fx.Node], inputs: list[fx.Node]) -> list[fx.Node]:
        """The results among the nodes that `play` gave; a result may be an input."""
        other: dict[Any, fx.Node] = dict(zip(self.inputs, inputs, strict=True))
        other.update(zip(self.nodes, nodes, strict=True))
        return [other[node] for node in self.gives]


def _is_simple(node: fx.Node) -> bool:
    """Whether a node makes one new tensor that a fake of its shape and type replaces."""
    value = node.meta.get("val")
    return (
        isinstance(node.target, OpOverload)
        and isinstance(value, Tensor)
        and not is_view(node.target)
        and not written_arguments(node.target)
        and new_fake_like(value) is not None
    )
