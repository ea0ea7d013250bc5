"""Pass: the gradient of a table that is looked up and multiplied is one tensor, not three.

A language model's table of words is its output layer, too. Autograd computes the gradient of each
use, both as large as the table, and adds them. But a lookup changes only the rows it read:

    mm(t(dy), x) + embedding_dense_backward(rows, ids)   becomes   mm(t(dy), x).index_add(ids, rows)

The rows are added in place. The product is put off until then if it is larger than what it is made
of: it would take memory for the whole backward pass.
"""

import torch
from torch import Tensor, fx

from tremula.ir.nodes import is_view, operand
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_LOOKUP, _MM = aten.embedding_dense_backward.default, aten.mm.default
# The key under which the meta of an update says that nothing else reads its first operand.
OVERWRITES = "overwrites its operand"


def add_rows_in_place(step: CapturedStep) -> CapturedStep:
    """Rewrite sums of a product and a lookup's gradient; what they were is left behind, dead."""
    for total in list(step.graph.nodes):
        if total.target is aten.add.Tensor and not total.kwargs:
            for place in (0, 1):
                chain, lookup = _chain_of(total.args[1 - place]), total.args[place]
                if chain and _is_lookup(lookup) and _is_alike(total):
                    _rewrite(step.graph, total, chain, lookup)  # pyright: ignore[reportArgumentType]
                    break
    return step


def _chain_of(node: object) -> list[fx.Node]:
    """A product and the views that lead from it to here, if nothing else reads them."""
    chain: list[fx.Node] = []
    while isinstance(node, fx.Node) and len(node.users) == 1:
        chain.insert(0, node)
        if node.target is _MM:
            return chain
        if not is_view(node.target):
            break
        node = operand(node)
    return []


def _is_lookup(node: object) -> bool:
    """Whether a node is the gradient of a plain lookup: no padding, no scaling by frequency."""
    if not isinstance(node, fx.Node) or node.target is not _LOOKUP or len(node.users) != 1:
        return False
    padding, by_frequency = node.args[3:5]
    return (padding, by_frequency) == (-1, False)


def _is_alike(total: fx.Node) -> bool:
    facts = {(n.meta["val"].shape, n.meta["val"].dtype) for n in (total, *total.all_input_nodes)}
    return len(facts) == 1


def _rewrite(graph: fx.Graph, total: fx.Node, chain: list[fx.Node], lookup: fx.Node) -> None:
    gradient, ids = operand(lookup), operand(lookup, 1)
    n = ids.meta["val"].numel()
    with graph.inserting_before(total):
        rows = _view(graph, gradient, (n, total.meta["val"].shape[1]), lookup)
        places = _view(graph, ids, (n,), lookup)
        added = graph.call_function(aten.index_add.default, (chain[-1], 0, places, rows))
    added.meta = {**lookup.meta, "val": total.meta["val"], OVERWRITES: True}
    total.replace_all_uses_with(added)
    if _n_elements(chain[0]) > sum(map(_n_elements, chain[0].all_input_nodes)):
        for node in chain:
            rows.prepend(node)


def _view(graph: fx.Graph, node: fx.Node, shape: tuple[int, ...], like: fx.Node) -> fx.Node:
    view = graph.call_function(aten.view.default, (node, list(shape)))
    value: Tensor = node.meta["val"]
    view.meta = {**like.meta, "val": value.new_empty(shape)}
    return view


def _n_elements(node: fx.Node) -> int:
    return node.meta["val"].numel()
