"""Pass of the host: operations overwrite operands that nothing else reads, as eager code would."""

import torch
from torch import Tensor, fx

from tremula.ir.nodes import is_view, operand, schema_name
from tremula.ir.step import BUFFER, CapturedStep

aten = torch.ops.aten

# Element-wise operations worth doing in place, with their in-place overloads.
_IN_PLACE = {
    aten.add.Tensor: aten.add_.Tensor,
    aten.sub.Tensor: aten.sub_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.div.Tensor: aten.div_.Tensor,
    aten.relu.default: aten.relu_.default,
    aten.neg.default: aten.neg_.default,
    aten.exp.default: aten.exp_.default,
    aten.sqrt.default: aten.sqrt_.default,
    aten.tanh.default: aten.tanh_.default,
    aten.sigmoid.default: aten.sigmoid_.default,
    aten.clamp.default: aten.clamp_.default,
    aten.leaky_relu.default: aten.leaky_relu_.default,
    aten.masked_fill.Scalar: aten.masked_fill_.Scalar,
    aten.index_put.default: aten.index_put_.default,
    aten.index_copy.default: aten.index_copy_.default,
}
# Results that may share memory with an operand although no schema says so.
_MAY_ALIAS = {
    "aten::reshape", "aten::contiguous", "aten::_to_copy", "aten::to", "aten::expand",
    "aten::_unsafe_view", "aten::flatten",
}  # fmt: skip


def write_over_dead_operands(step: CapturedStep, *, owns_buffers: bool = False) -> CapturedStep:
    """Replace `c = op(a, b)` by `op_(a, b)` where `a` is a fresh tensor last used there.

    A buffer that the step writes counts as fresh if the program owns it: its old value is dead.
    """
    buffers = _written_buffers(step) if owns_buffers else set()
    owned: set[fx.Node] = set(buffers)
    order = {node: i for i, node in enumerate(step.graph.nodes)}
    for node in step.graph.nodes:
        if node.op != "call_function":
            continue
        in_place = _IN_PLACE.get(node.target)
        if in_place is not None and (
            _may_overwrite(node, owned) or _is_new_value(node, buffers, order)
        ):
            node.target = in_place
            owned.add(node)
        elif makes_a_new_tensor(node):
            owned.add(node)
    return step


def _written_buffers(step: CapturedStep) -> set[fx.Node]:
    nodes = step.placeholders()
    positions = {slot.index: position for position, slot in step.of_kind(BUFFER)}
    return {nodes[positions[slot.index]] for _, slot in step.results_of_kind(BUFFER)}


def _is_new_value(node: fx.Node, buffers: set[fx.Node], order: dict[fx.Node, int]) -> bool:
    """Whether a node makes something of a buffer that nothing reads later, in its layout."""
    buffer = node.args[0]
    if buffer not in buffers or not _is_last_reader(node, buffer, order):
        return False
    return _stays_inside(node) and _is_laid_out_alike(buffer, node)


def _is_last_reader(node: fx.Node, value: fx.Node, order: dict[fx.Node, int]) -> bool:
    """Whether nothing reads a value, or what shares its memory, once a node has run."""
    for user in value.users:
        if user is node:
            if _reads(node, value) != 1:
                return False
            continue
        if user.op == "output" or order[user] > order[node]:
            return False
        if not makes_a_new_tensor(user) and not _is_last_reader(node, user, order):
            return False
    return True


def _stays_inside(node: fx.Node) -> bool:
    """Whether a value is returned at most once, and no view of it: nothing outside refers to it."""
    others = [user for user in node.users if user.op != "output"]
    n_returned = sum(_reads(user, node) for user in node.users if user.op == "output")
    return n_returned <= 1 and all(makes_a_new_tensor(user) for user in others)


def _may_overwrite(node: fx.Node, owned: set[fx.Node]) -> bool:
    """The first operand is fresh, read only here and once, and laid out like the result."""
    first = node.args[0]
    if first not in owned or len(first.users) != 1 or _reads(node, first) != 1:
        return False
    return _is_laid_out_alike(first, node)


def _is_laid_out_alike(first: fx.Node, node: fx.Node) -> bool:
    was, becomes = first.meta["val"], node.meta["val"]
    return (
        was.shape == becomes.shape
        and was.dtype == becomes.dtype
        and was.stride() == becomes.stride()
    )


def _reads(node: fx.Node, operand: fx.Node) -> int:
    result = []
    fx.map_arg((node.args, node.kwargs), lambda n: result.append(n) if n is operand else None)
    return len(result)


def makes_a_new_tensor(node: fx.Node) -> bool:
    """Whether a value is in memory that no other value is in."""
    if not isinstance(node.meta.get("val"), Tensor):
        return False
    if not schema_name(node):  # an item of several results: fresh unless its maker is a view
        source = node.args[0]
        return (
            isinstance(source, fx.Node) and bool(schema_name(source)) and not is_view(source.target)
        )
    if node.target is aten._to_copy.default:  # another type is another tensor
        return operand(node).meta["val"].dtype != node.meta["val"].dtype
    return not is_view(node.target) and schema_name(node) not in _MAY_ALIAS
