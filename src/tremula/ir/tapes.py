"""Tapes: calls that were recorded once, as nodes to add again for other tensors.

    new_mean = 0.9 * mean + 0.1 * grad       recorded for the first weight: three nodes
        inputs    mean, grad
        entries   mul(input 0, 0.9); mul(input 1, 0.1); add(entry 0, entry 1)

For the next weight of that shape the three nodes are copied, and nothing runs.
"""

import operator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx
from torch._ops import OpOverload

from tremula.ir.fake_results import is_plain_fake, new_fake_with_strides
from tremula.ir.nodes import written_arguments
from tremula.ir.origin import ORIGIN, Origin


@dataclass(frozen=True)
class CallTape:
    """The nodes that a function made, in their order, and which of them are its results."""

    inputs: tuple[fx.Node, ...]
    nodes: tuple[fx.Node, ...]
    gives: tuple[fx.Node, ...]

    @staticmethod
    def since(last: fx.Node, inputs: list[fx.Node], results: list[fx.Node]) -> "CallTape | None":
        """What was added behind a node; None if it is more than calls that write nothing."""
        nodes = []
        node = last.next
        while node.op != "root":
            nodes.append(node)
            node = node.next
        known = {*inputs, *nodes}
        if not all(map(_is_simple, nodes)) or not known.issuperset(results):
            return None
        return CallTape(tuple(inputs), tuple(nodes), tuple(results))

    def play(
        self, graph: fx.Graph, inputs: list[fx.Node], origin: Origin
    ) -> tuple[list[fx.Node], list[fx.Node]]:
        """Add the nodes again, for other inputs: the new nodes, and the results.

        What else they read stays as it is. A new view has separate memory, which is no matter to
        what reads a graph: that it is a view is known from its operation.
        """
        other: dict[fx.Node, fx.Node] = dict(zip(self.inputs, inputs, strict=True))
        for node in self.nodes:
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: other.get(n, n))
            new = other[node] = graph.call_function(node.target, args, kwargs)  # pyright: ignore[reportArgumentType]
            new.meta.update(node.meta)
            new.meta[ORIGIN] = origin
            new.meta["val"] = _value_again(node, new)
        return [other[node] for node in self.nodes], [other[node] for node in self.gives]


def _value_again(node: fx.Node, new: fx.Node) -> Any:  # noqa: ANN401 - tensors, or several
    if node.target is operator.getitem:
        source, index = new.args
        return source.meta["val"][index]  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    value = node.meta["val"]
    if isinstance(value, Tensor):
        return new_fake_with_strides(value)
    return tuple(None if part is None else new_fake_with_strides(part) for part in value)


def _is_simple(node: fx.Node) -> bool:
    """Whether a node only makes tensors that fakes of their shapes and types replace."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    is_call = isinstance(node.target, OpOverload) and not written_arguments(node.target)
    return (is_call or node.target is operator.getitem) and all(
        part is None or is_plain_fake(part) for part in values
    )
