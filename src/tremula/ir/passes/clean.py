"""Passes that remove work: identities, dead nodes, repeated and constant expressions."""

import torch
from torch import Tensor, fx

from tremula.ir.nodes import is_random, operand, schema_name
from tremula.ir.ops.markers import MARKERS
from tremula.ir.origin import ORIGIN
from tremula.ir.step import CapturedStep

aten = torch.ops.aten

IDENTITIES = {aten.detach.default, aten.alias.default, aten.lift_fresh.default}
_FOLD_LIMIT = 1 << 16  # elements: larger constants are cheaper to make again than to keep


def drop_identities(step: CapturedStep) -> CapturedStep:
    """detach, alias and conversions to the type a tensor has are the tensor."""
    for node in step.graph.nodes:
        if node.op == "call_function" and _is_identity(node):
            node.replace_all_uses_with(node.args[0])
            step.graph.erase_node(node)
    return step


def _is_identity(node: fx.Node) -> bool:
    if node.target in IDENTITIES:
        return True
    if node.target is aten._to_copy.default:
        had, has = operand(node).meta["val"], node.meta["val"]
        return had.dtype == has.dtype and "memory_format" not in node.kwargs
    if node.target in (aten.view.default, aten.expand.default, aten._unsafe_view.default):
        return operand(node).meta["val"].shape == node.meta["val"].shape
    return False


def drop_dead(step: CapturedStep) -> CapturedStep:
    """Nodes whose value nothing uses; what prints stays."""
    for node in reversed(list(step.graph.nodes)):
        prints = schema_name(node) == "tremula::print_tensor"
        if node.op in ("call_function", "get_attr") and not node.users and not prints:
            step.graph.erase_node(node)
    used = {node.target for node in step.graph.nodes if node.op == "get_attr"}
    return step.with_graph(
        step.graph, constants={k: v for k, v in step.constants.items() if k in used}
    )


def share_common(step: CapturedStep) -> CapturedStep:
    """Equal calls on equal arguments are made once.

    Those that torch.utils.checkpoint makes again stay: they are there so that the values of the
    forward pass need not wait for them.
    """
    seen: dict[tuple, fx.Node] = {}
    for node in list(step.graph.nodes):
        if node.op != "call_function" or is_random(node) or schema_name(node) in MARKERS:
            continue
        again = ORIGIN in node.meta and node.meta[ORIGIN].is_recomputed
        key = (node.target, _key(node.args), _key(node.kwargs), again)
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            step.graph.erase_node(node)
    return step


def _key(value: object) -> object:
    """An argument as part of a key; numbers with their types, as 1 == 1.0."""
    if isinstance(value, tuple | list):
        return type(value), *[_key(part) for part in value]
    if isinstance(value, dict):
        return dict, *[(name, _key(part)) for name, part in value.items()]
    return value if isinstance(value, fx.Node) else (type(value), value)


def fold_constants(step: CapturedStep) -> CapturedStep:
    """Small expressions of constants become constants."""
    constants = dict(step.constants)
    known: dict[fx.Node, Tensor] = {}
    for node in list(step.graph.nodes):
        if node.op == "get_attr":
            known[node] = constants[node.target]
        elif node.op == "call_function" and _foldable(node, known):
            args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
            name = f"folded_{node.name}"
            value = constants[name] = node.target(*args, **kwargs)
            with step.graph.inserting_before(node):
                folded = step.graph.get_attr(name)
            folded.meta.update(node.meta)
            known[folded] = value
            node.replace_all_uses_with(folded)
            step.graph.erase_node(node)
    return step.with_graph(step.graph, constants=constants)


def _foldable(node: fx.Node, known: dict[fx.Node, Tensor]) -> bool:
    """Only of constants, with at least one: a `full` or `arange` alone is better made in place."""
    value = node.meta.get("val")
    return (
        bool(node.all_input_nodes)
        and all(source in known for source in node.all_input_nodes)
        and isinstance(value, Tensor)
        and value.numel() <= _FOLD_LIMIT
        and not is_random(node)
        and schema_name(node) not in MARKERS
    )
