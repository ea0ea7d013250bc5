"""Queries about the nodes of a step: where they are, what reads them, what they become."""

import operator
from collections.abc import Callable

import torch
from torch import fx

from tremula.base.source import Source
from tremula.ir.lowering.pointwise.fused import Folded
from tremula.ir.lowering.types import tile_type
from tremula.ir.nodes import is_view, overload_name
from tremula.ir.ops.markers import GRADIENT_MARK
from tremula.ir.origin import OPTIMISER, ORIGIN
from tremula.ir.step import PARAMETER, STATE, CapturedStep
from tremula.poplar.tensors.tensor import Tensor


def n_elements(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) else 0


def follows_operand(node: fx.Node) -> bool:
    """Whether a node computes nothing: a view, one of several results, the mark of a gradient."""
    return node.target in (operator.getitem, GRADIENT_MARK) or (
        is_view(node.target) and node.op == "call_function"
    )


def is_of_update(node: fx.Node) -> bool:
    origin = node.meta.get(ORIGIN)
    return origin is not None and origin.phase == OPTIMISER


def consumers(node: fx.Node) -> list[fx.Node]:
    """Nodes that compute with a value or with a view of it."""
    result = []
    for user in node.users:
        result += consumers(user) if follows_operand(user) else [user]
    return result


def source_of_user(node: fx.Node) -> Source | None:
    origin = next((u.meta[ORIGIN] for u in node.users if ORIGIN in u.meta), None)
    return origin.source if origin is not None else None


def _last_read(node: fx.Node, order: dict[fx.Node, int]) -> int:
    """When a value, or a view of it, is last read; being a result of the step does not count."""
    last = -1
    for user in node.users:
        if user.op != "output":
            reach = _last_read(user, order) if is_view(user.target) else -1
            last = max(last, order[user], reach)
    return last


def held_nodes(step: CapturedStep) -> dict[tuple[str, int], fx.Node]:
    """The placeholder of each kind and index."""
    pairs = zip(step.inputs, step.placeholders(), strict=True)
    return {(slot.kind, slot.index): node for slot, node in pairs}


def overwrites(step: CapturedStep, folded: Folded) -> dict[fx.Node, fx.Node]:
    """Nodes that may write their value over the resident tensor it becomes: node → placeholder."""
    order = folded.places({node: index for index, node in enumerate(step.graph.nodes)})
    state_nodes = held_nodes(step)
    result = {}
    for slot, node in zip(step.outputs, step.results(), strict=True):
        old = state_nodes.get((slot.kind, slot.index))
        if slot.kind not in (PARAMETER, STATE) or old is None or node.op != "call_function":
            continue
        if _last_read(old, order) <= order[node]:
            result[node] = old
    return result


def held_by_result(step: CapturedStep) -> dict[fx.Node, list[fx.Node]]:
    """For a node: the weights and states that become its value."""
    result: dict[fx.Node, list[fx.Node]] = {}
    state_nodes = held_nodes(step)
    for slot, node in zip(step.outputs, step.results(), strict=True):
        if slot.kind in (PARAMETER, STATE) and (slot.kind, slot.index) in state_nodes:
            result.setdefault(node, []).append(state_nodes[slot.kind, slot.index])
    return result


def base_of(node: fx.Node) -> fx.Node:
    """What a view is a view of; anything else is itself."""
    while node.op == "call_function" and follows_operand(node):
        node = node.all_input_nodes[0]
    return node


def chips_of_nodes(
    step: CapturedStep, own_chip: Callable[[fx.Node], int | None]
) -> dict[fx.Node, int]:
    """Each node is on the chip of `own_chip`, or follows its largest operand, or is on chip 0."""
    chip_of = {}
    for node in step.graph.nodes:
        chip = own_chip(node)
        if chip is not None:
            chip_of[node] = chip
    _place_held(step, chip_of)
    for node in step.graph.nodes:
        if node not in chip_of:
            known = [n for n in node.all_input_nodes if n in chip_of]
            largest = max(known, key=n_elements, default=None)
            chip_of[node] = 0 if largest is None else chip_of[largest]
    return chip_of


def _place_held(step: CapturedStep, chip_of: dict[fx.Node, int]) -> None:
    """Place each resident tensor on the chip that first uses it, and a state with its weight.

    Scalars, which count the steps of each weight, stay together: the update reads them as one.
    """
    chip_of_parameter = {}
    for slot, node in zip(step.inputs, step.placeholders(), strict=True):
        user = next((user for user in consumers(node) if user in chip_of), None)
        if user is not None and node not in chip_of:
            chip_of[node] = chip_of[user]
        if slot.kind == PARAMETER:
            chip_of_parameter[slot.name] = chip_of.get(node, 0)
        elif slot.owner is not None and n_elements(node) > 1:
            chip_of[node] = chip_of_parameter.get(slot.owner, 0)


def check_result(node: fx.Node, value: object) -> None:
    """A lowering returns the shape and type PyTorch promised; anything else is a bug."""
    expected = node.meta["val"]
    pairs = [(expected, value)]
    if isinstance(expected, tuple | list):
        assert isinstance(value, tuple | list), f"{node.name} has several results"
        pairs = [
            p for p in zip(expected, value, strict=True) if p[0] is not None and p[1] is not None
        ]
    for fake, tensor in pairs:
        want = (tuple(int(n) for n in fake.shape), tile_type(fake.dtype))
        if not isinstance(tensor, Tensor) or (tuple(tensor.shape), tensor.type) != want:
            got = f"{tensor.type}{list(tensor.shape)}" if isinstance(tensor, Tensor) else tensor
            raise AssertionError(
                f"lowering of {overload_name(node.target)} gave {got},"
                f" expected {want[1]}{list(want[0])}"
            )
