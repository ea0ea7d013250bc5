"""Pass: the gradient of a weight comes out of its product in the memory order of the weight.

A layer reads its weight [out, in] transposed, as the right operand of a product, and so the weight
is laid out with `out` innermost. Its gradient, as PyTorch writes it, has `in` innermost:

    mm(t(dy), x)  [out, in]   becomes   t(mm(t(x), dy))

Both are sums of the same terms. But the second has long runs of elements in the order of the
weight, the first has none, and the update brings every gradient to its weight.
"""

import torch
from torch import fx

from tremula.ir.nodes import operand
from tremula.ir.ops.markers import GRADIENT_MARK
from tremula.ir.step import PARAMETER, CapturedStep

aten = torch.ops.aten
_T, _MM = aten.t.default, aten.mm.default
# Products, and which of their arguments is the right operand.
_RIGHT_OPERAND: dict[object, int] = {_MM: 1, aten.addmm.default: 2}


def transpose_gradients(step: CapturedStep) -> CapturedStep:
    """Compute gradients of weights that are read transposed as transposed products.

    What they were before is left behind, dead.
    """
    if step.rule is None:
        return step
    pairs = zip(step.inputs, step.placeholders(), strict=True)
    weights = {slot.name: node for slot, node in pairs if slot.kind == PARAMETER}
    for mark in list(step.graph.nodes):
        if mark.target is GRADIENT_MARK:
            weight = weights.get(step.rule.names[mark.args[1]])
            product = _product_of(operand(mark))
            if product is not None and weight is not None and _is_read_transposed(weight):
                mark.replace_input_with(operand(mark), _turned(step.graph, product))
    return step


def _product_of(gradient: fx.Node) -> fx.Node | None:
    """The product mm(t(dy), x) that a gradient is, unless it is turned already."""
    is_turned = False
    while gradient.target is _T and len(gradient.users) == 1:
        gradient, is_turned = operand(gradient), not is_turned
    is_product = gradient.target is _MM and len(gradient.users) == 1
    if is_turned or not is_product or operand(gradient).target is not _T:
        return None
    return gradient


def _is_read_transposed(weight: fx.Node) -> bool:
    """Whether the first operation with a weight is a product with its transpose on the right."""
    view = next(iter(weight.users))
    reader = next(iter(view.users), None) if view.target is _T else None
    if reader is None or reader.target not in _RIGHT_OPERAND:
        return False
    return reader.args[_RIGHT_OPERAND[reader.target]] is view


def _turned(graph: fx.Graph, product: fx.Node) -> fx.Node:
    """t(mm(t(x), dy)) behind mm(t(dy), x)."""
    dy, x = operand(operand(product)), operand(product, 1)
    with graph.inserting_after(product):
        view = _transposed(graph, x, product)
    with graph.inserting_after(view):
        other = graph.call_function(_MM, (view, dy))
        other.meta = {**product.meta, "val": product.meta["val"].t()}
    with graph.inserting_after(other):
        return _transposed(graph, other, product)


def _transposed(graph: fx.Graph, node: fx.Node, like: fx.Node) -> fx.Node:
    view = graph.call_function(_T, (node,))
    view.meta = {**like.meta, "val": node.meta["val"].t()}
    return view
