"""Layouts of a model's weights and inputs: as their first product wants them, or spread."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import ints, operand, overload_of
from tremula.ir.op_table import LayoutPreference, preference_of
from tremula.ir.passes.table_gradients import OVERWRITES
from tremula.poplar.tensors.tensor import Tensor

aten = torch.ops.aten


def preferred_layout(placeholder: fx.Node, place: Callable[[fx.Node], Tiles]) -> Tensor | None:
    """A new tensor of the placeholder's shape as a consumer wants it, or None if none cares."""
    result = _consumer(placeholder)
    if result is None:
        return None
    chain, consumer, preference = result
    tensor = preference.create(place(consumer), consumer)
    if tensor is None:
        return None
    for view in reversed(chain):
        tensor = _undone(view, tensor)
    return tensor


def overwriters_layout(tiles: Tiles) -> Tensor | None:
    """A new tensor for a node's result as its only reader wants it, which writes over it."""
    result = _consumer(tiles.node)
    if result is None or OVERWRITES not in result[1].meta:
        return None
    return preferred_layout(tiles.node, lambda reader: replace(tiles, node=reader))


def is_laid_out_for_another(reader: fx.Node, argument: int) -> bool:
    """Whether an operand is a weight or an input that was laid out for an earlier reader."""
    node: Any = reader.args[argument]
    while isinstance(node, fx.Node) and node.target in _UNDO:
        node = node.args[0]
    if not isinstance(node, fx.Node) or node.op != "placeholder":
        return False
    result = _consumer(node)
    return result is not None and result[1] is not reader


def is_wanted_otherwise(reader: fx.Node, argument: int) -> bool:
    """Whether another kind of operation would lay out the same weight or input differently."""
    operand: Any = reader.args[argument]
    return any(user.target is not reader.target for _, user, _ in _consumers(operand))


def _consumer(node: fx.Node) -> "_Consumer | None":
    return next(_consumers(node), None)


_Consumer = tuple[list[fx.Node], fx.Node, LayoutPreference]


def _consumers(node: fx.Node) -> Iterator[_Consumer]:
    """Users with a preference, reached through views that can be undone, nearest first."""
    front: list[tuple[list[fx.Node], fx.Node]] = [([], node)]
    while front:
        chain, current = front.pop(0)
        for user in current.users:
            for position, argument in enumerate(user.args):
                if (
                    argument is current
                    and (preference := preference_of(user, position)) is not None
                ):
                    yield chain, user, preference
            if user.target in _UNDO:
                front.append(([*chain, user], user))


def _undone(view: fx.Node, tensor: Tensor) -> Tensor:
    return _UNDO[overload_of(view)](view, tensor)


def _reshaped(view: fx.Node, tensor: Tensor) -> Tensor:
    return tensor.reshape([int(n) for n in operand(view).meta["val"].shape])


def _transposed(view: fx.Node, tensor: Tensor) -> Tensor:
    if tensor.rank < 2:  # `t` of a vector is the vector
        return tensor
    order = list(range(tensor.rank))
    a, b = ints(view.args[1:] or (0, 1))
    order[a], order[b] = order[b], order[a]
    return tensor.dim_shuffle(order)


def _permuted(view: fx.Node, tensor: Tensor) -> Tensor:
    order = [d % tensor.rank for d in ints(view.args[1])]
    return tensor.dim_shuffle(sorted(range(len(order)), key=order.__getitem__))


_UNDO = {
    aten.view.default: _reshaped,
    aten._unsafe_view.default: _reshaped,
    aten.reshape.default: _reshaped,
    aten.unsqueeze.default: _reshaped,
    aten.squeeze.dims: _reshaped,
    aten.squeeze.dim: _reshaped,
    aten.t.default: _transposed,
    aten.transpose.int: _transposed,
    aten.permute.default: _permuted,
}
