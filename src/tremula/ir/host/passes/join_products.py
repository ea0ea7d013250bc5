"""Pass for Inductor on a GPU: linear layers of one input are one product, in each direction.

Queries, keys and values of attention are three products of the same rows. As one product with the
three matrices side by side, the rows are read once; the gradient of the rows is one product instead
of three and two additions, and the gradients of the matrices are one product:

    y1 = x w1ᵀ, y2 = x w2ᵀ             y = x wᵀ           w = [w1; w2]      columns of y: y1, y2
    dx = dy1 w1 + dy2 w2               dx = dy w          dy = [dy1 dy2]
    dw1 = dy1ᵀ x, dw2 = dy2ᵀ x         dw = dyᵀ x                           rows of dw: dw1, dw2
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx

from tremula.ir.host.passes.fused_attention import fused_backward
from tremula.ir.nodes import call_like, operand, overload_of
from tremula.ir.passes.clean import drop_dead
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_TRANSPOSED = aten.t.default
_MATRIX_PRODUCTS = (aten.mm.default, aten.addmm.default)
_VIEWS = (aten.reshape.default, aten.t.default, aten.transpose.int, aten.permute.default)
# What writes its result itself, so that putting it beside another one takes a copy.
_KERNELS = (*_MATRIX_PRODUCTS, aten.bmm.default, aten.baddbmm.default, fused_backward)

Nodes = tuple[fx.Node, ...]


def join_products(step: CapturedStep) -> CapturedStep:
    """Join the products of layers with the same input, and those of their gradients."""
    gradients_of_rows = _products_by_weight(step.graph)
    for layers in _layers_of_one_input(step.graph, set(gradients_of_rows)):
        weights = _join_columns(step.graph, layers)
        products = [gradients_of_rows.get(weight, []) for weight in weights.sources]
        gradients = _join_sum(step.graph, products, weights.whole)
        if gradients is not None:
            _join_rows(step.graph, layers[0].rows, gradients)
    return drop_dead(step)


@dataclass(frozen=True)
class _Layer:
    """A product of rows with the transpose of a weight."""

    product: fx.Node
    weight: fx.Node  # a parameter, or one in another type

    @property
    def bias(self) -> fx.Node | None:
        return operand(self.product) if self.product.target is aten.addmm.default else None

    @property
    def rows(self) -> fx.Node:
        return operand(self.product, -2)


@dataclass(frozen=True)
class _Joined:
    """Nodes side by side, or one below the other."""

    sources: Nodes
    whole: fx.Node


# -- forwards --------------------------------------------------------------------------------------


def _layers_of_one_input(graph: fx.Graph, trained: set[fx.Node]) -> list[list[_Layer]]:
    """Groups of layers for which one product is faster; `trained` are weights with gradients."""
    groups: dict[tuple, list[_Layer]] = {}
    for node in graph.nodes:
        layer = _layer(node)
        if layer is not None:
            groups.setdefault((layer.rows, node.target), []).append(layer)
    return [group for group in groups.values() if _saves_memory_traffic(group, trained)]


def _layer(node: fx.Node) -> _Layer | None:
    if node.target not in _MATRIX_PRODUCTS or node.kwargs:
        return None
    weight, is_transposed = _untransposed(operand(node, -1))
    layer = _Layer(node, weight)
    bias = layer.bias
    if bias is not None and (bias.meta["val"].dim() != 1 or not _is_weight(bias)):
        return None
    return layer if is_transposed and _is_weight(weight) else None


def _is_weight(node: fx.Node) -> bool:
    source = operand(node) if node.target is aten._to_copy.default else node
    return source.op == "placeholder"


def _untransposed(node: fx.Node) -> tuple[fx.Node, bool]:
    is_transposed = False
    while node.target is _TRANSPOSED:
        node, is_transposed = operand(node), not is_transposed
    return node, is_transposed


def _saves_memory_traffic(group: Sequence[_Layer], trained: set[fx.Node]) -> bool:
    """Whether what is read and written less is more than a copy of the weights.

    For each layer but one, the rows are read once less. If gradients are joined, the rows are read
    once less for those of the weights, too, and a gradient of the rows is neither written nor read
    to be added.
    """
    n_rows, n_columns = group[0].product.meta["val"].shape[0], sum(map(_n_columns, group))
    n_saved = 4 if all(layer.weight in trained for layer in group) else 1
    return 2 * n_columns < n_saved * (len(group) - 1) * n_rows  # each times the width of the rows


def _n_columns(layer: _Layer) -> int:
    return layer.product.meta["val"].shape[1]


def _join_columns(graph: fx.Graph, layers: Sequence[_Layer]) -> _Joined:
    """One product instead of several; returns the weights, one below the other."""
    first = layers[0].product
    weights = _joined_before(graph, first, tuple(layer.weight for layer in layers))
    biases = tuple(layer.bias for layer in layers if layer.bias is not None)
    args: list[fx.Node] = [_joined_before(graph, first, biases).whole] if biases else []
    with graph.inserting_before(first):
        transposed = call_like(graph, aten.t.default, (weights.whole,), first)
        whole = call_like(graph, overload_of(first), (*args, layers[0].rows, transposed), first)
        _replace_by_parts(graph, [layer.product for layer in layers], whole, 1)
    return weights


def _replace_by_parts(graph: fx.Graph, nodes: Sequence[fx.Node], whole: fx.Node, dim: int) -> None:
    """Let those who read several nodes read slices of one that has them side by side."""
    begin = 0
    for node in nodes:
        end = begin + node.meta["val"].shape[dim]
        part = call_like(graph, aten.slice.Tensor, (whole, dim, begin, end), node)
        node.replace_all_uses_with(part)
        begin = end


def _joined_before(graph: fx.Graph, reader: fx.Node, sources: Nodes) -> _Joined:
    """Weights, or biases, one below the other; those in another type are converted before that."""
    for source in sources:
        if source.op != "placeholder" and reader < source:
            reader.prepend(source)
    with graph.inserting_before(reader):
        return _Joined(sources, call_like(graph, aten.cat.default, (list(sources), 0), reader))


# -- backwards -------------------------------------------------------------------------------------


def _products_by_weight(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """The products with each matrix that is not transposed: gradients of rows, for a weight."""
    products: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.target is aten.mm.default:
            matrix, is_transposed = _untransposed(operand(node, 1))
            if not is_transposed:
                products.setdefault(matrix, []).append(node)
    return products


def _join_sum(
    graph: fx.Graph, products_by_weight: Sequence[Sequence[fx.Node]], weights: fx.Node
) -> _Joined | None:
    """One product for the gradient of the rows; returns the layers' gradients side by side.

    None if that gradient is not a sum of one product with each weight, or if gradients would have
    to be copied to be side by side.
    """
    if any(len(products) != 1 for products in products_by_weight):
        return None
    products = tuple(product for (product,) in products_by_weight)
    sources = tuple(operand(product) for product in products)
    root = _sum_of(products)
    if root is None or not all(map(_is_copied, sources)):
        return None
    last = max(sources)
    with graph.inserting_after(last):
        gradients = call_like(graph, aten.cat.default, (list(sources), 1), last)
    terms = [term for term in _terms(root) if _product_of(term) not in products]
    with graph.inserting_before(root):
        product = call_like(graph, aten.mm.default, (gradients, weights), root)
        result = call_like(graph, aten.reshape.default, (product, [*root.meta["val"].shape]), root)
        for term in terms:
            result = call_like(graph, aten.add.Tensor, (result, term), root)
    root.replace_all_uses_with(result)
    return _Joined(sources, gradients)


def _sum_of(products: Nodes) -> fx.Node | None:
    """The addition of which each of these products is one term, and which nothing else reads."""
    n_elements = {product.meta["val"].numel() for product in products}
    node = products[0]
    while len(node.users) == 1:
        (node,) = node.users
        if node.target is aten.reshape.default:
            continue
        if not _is_sum(node) or {node.meta["val"].numel()} != n_elements:
            return None
        several = [_product_of(term) for term in _terms(node)]
        if all(several.count(product) == 1 for product in products):
            return node
    return None


def _is_sum(node: fx.Node) -> bool:
    """Whether a node adds two tensors as they are."""
    is_plain = node.target is aten.add.Tensor and not node.kwargs
    return is_plain and all(isinstance(x, fx.Node) for x in node.args)


def _terms(root: fx.Node) -> list[fx.Node]:
    """What a tree of additions adds up."""
    terms: list[fx.Node] = []
    for position in range(2):
        term = operand(root, position)
        is_inner = _is_sum(term) and set(term.users) == {root}
        is_inner = is_inner and term.meta["val"].shape == root.meta["val"].shape
        terms += _terms(term) if is_inner else [term]
    return terms


def _product_of(term: fx.Node) -> fx.Node:
    """The node that a term reshapes."""
    while term.target is aten.reshape.default and len(term.users) == 1:
        term = operand(term)
    return term


def _is_copied(node: fx.Node) -> bool:
    """Whether a gradient is computed element by element, so that it can be written anywhere."""
    while node.target in _VIEWS or node.target is operator.getitem:
        node = operand(node)
    return node.target not in _KERNELS


def _join_rows(graph: fx.Graph, rows: fx.Node, gradients: _Joined) -> None:
    """One product for the gradients of the weights, if all of them are read later."""
    products = [_gradient_of_weight(source, rows) for source in gradients.sources]
    several = [product for product in products if product is not None]
    is_later = all(gradients.whole < user for product in several for user in product.users)
    if len(several) < len(products) or not is_later:
        return
    with graph.inserting_before(gradients.whole.next):
        transposed = call_like(graph, aten.t.default, (gradients.whole,), gradients.whole)
        whole = call_like(graph, aten.mm.default, (transposed, rows), several[0])
        _replace_by_parts(graph, several, whole, 0)


def _gradient_of_weight(gradient: fx.Node, rows: fx.Node) -> fx.Node | None:
    """The product of a gradient's transpose with the rows."""
    products = [
        node
        for view in gradient.users
        if view.target is _TRANSPOSED
        for node in view.users
        if node.target is aten.mm.default and node.args == (view, rows)
    ]
    return products[0] if len(products) == 1 else None
