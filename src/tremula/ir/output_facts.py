"""What a graph tells about outputs: whether they are constant, and whether they share memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx

from tremula.ir.nodes import is_random, is_view, operand, schema_name

# Results that may share memory with an operand although no schema says so.
_MAY_ALIAS = {"aten::reshape", "aten::contiguous", "aten::_to_copy", "aten::to", "aten::flatten"}


@dataclass(frozen=True)
class OutputFact:
    """What is known about an output before it is computed."""

    is_constant: bool  # depends on nothing a call changes: returned once
    must_copy: bool  # may share memory with a weight, an input, a constant or another result
    shape: tuple[int, ...]
    dtype: torch.dtype


def output_facts(nodes: Sequence[fx.Node], others: Sequence[fx.Node] = ()) -> list[OutputFact]:
    """The facts of outputs, in order; `others` are the step's other results."""
    roots = {_owner_of_memory(node) for node in others}
    facts = []
    for node in nodes:
        root = _owner_of_memory(node)
        shared = root.op != "call_function" or root in roots
        roots.add(root)
        value = node.meta["val"]
        facts.append(OutputFact(_is_constant(node), shared, tuple(value.shape), value.dtype))
    return facts


def _owner_of_memory(node: fx.Node) -> fx.Node:
    while node.op == "call_function":
        is_item = not schema_name(node)
        if not (is_item or is_view(node.target) or schema_name(node) in _MAY_ALIAS):
            return node
        source = operand(node)
        if is_item and not is_view(source.target):
            return node
        node = source
    return node


def _is_constant(node: fx.Node) -> bool:
    seen, front = {node}, [node]
    while front:
        current = front.pop()
        if current.op == "placeholder" or (current.op == "call_function" and is_random(current)):
            return False
        new = [source for source in current.all_input_nodes if source not in seen]
        seen.update(new)
        front += new
    return True
