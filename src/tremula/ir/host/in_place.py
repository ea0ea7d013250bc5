"""Pass of the host: operations write over operands nothing else will read, as eager code would."""

import torch
from torch import Tensor, fx

from tremula.ir.passes.clean import schema_name
from tremula.ir.passes.views import is_view
from tremula.ir.step import CapturedStep

aten = torch.ops.aten

# Element-wise operations worth doing in place, with their in-place overloads.
_PAIRS = {
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
    aten.slice_scatter.default: None,
}
# Results that may share memory with an operand although no schema says so.
_MAY_ALIAS = {
    "aten::reshape", "aten::contiguous", "aten::_to_copy", "aten::to", "aten::expand",
    "aten::_unsafe_view", "aten::flatten",
}  # fmt: skip


def write_over_dead_operands(step: CapturedStep) -> CapturedStep:
    """Replace `c = op(a, b)` by `op_(a, b)` where `a` is a fresh tensor that ends there."""
    for node in step.graph.nodes:
        in_place = _PAIRS.get(node.target) if node.op == "call_function" else None
        if in_place is not None and _may_overwrite(node):
            node.target = in_place
    step.graph.lint()
    return step


def _may_overwrite(node: fx.Node) -> bool:
    victim = node.args[0]
    if not isinstance(victim, fx.Node) or not _owns_its_memory(victim):
        return False
    if len(victim.users) != 1 or node.all_input_nodes.count(victim) != 1:
        return False
    if sum(argument is victim for argument in node.args) != 1:
        return False
    was, becomes = victim.meta["val"], node.meta["val"]
    return (
        was.shape == becomes.shape
        and was.dtype == becomes.dtype
        and was.stride() == becomes.stride()
    )


def _owns_its_memory(node: fx.Node) -> bool:
    """Made by one operation that gives a new tensor: no view, no input, no constant."""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), Tensor):
        return False
    if is_view(node.target) or schema_name(node) in _MAY_ALIAS or node.target in _PAIRS.values():
        return node.target in _PAIRS.values() and _owns_its_memory_chain(node)
    if not schema_name(node):  # an item of several results: fresh unless its maker is a view
        source = node.args[0]
        return isinstance(source, fx.Node) and not is_view(source.target)
    return True


def _owns_its_memory_chain(node: fx.Node) -> bool:
    """An operation in place gives its operand back, which was owned or it would not be in place."""
    return node.op == "call_function"
