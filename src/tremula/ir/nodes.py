"""Nodes of a captured graph with the types they have: what `fx` leaves open is said here, once."""

import torch
from torch import fx
from torch._ops import OpOverload


def schema_name(node: fx.Node) -> str:
    """`aten::add` of a call of any overload of it; nothing for what is no operation."""
    schema = getattr(node.target, "_schema", None)
    return schema.name if schema is not None else ""


def overload_of(node: fx.Node) -> OpOverload:
    """The operation a node calls."""
    assert isinstance(node.target, OpOverload), f"{node.name} calls {node.target}, no operation"
    return node.target


def operand(node: fx.Node, position: int = 0) -> fx.Node:
    """An argument that is a node itself."""
    found = node.args[position]
    assert isinstance(found, fx.Node), f"argument {position} of {node.name} is {found}, no node"
    return found


def ints(argument: object) -> list[int]:
    """An argument that is a list of whole numbers: sizes, dimensions."""
    assert isinstance(argument, list | tuple), f"{argument} is no list"
    return [int(n) for n in argument]


def whole(argument: object) -> int:
    """An argument that is one whole number."""
    assert isinstance(argument, int | torch.SymInt), f"{argument} is no whole number"
    return int(argument)
