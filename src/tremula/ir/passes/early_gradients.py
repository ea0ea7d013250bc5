"""Pass: a gradient is marked, and so added up over micro-batches, as soon as it is computed.

Autograd hands out all gradients of a step together, at its end. Left there, each would wait in
memory beside the sum that it is added to, those of all layers at once.
"""

import operator

from torch import fx

from tremula.ir.nodes import is_view, operand
from tremula.ir.ops.markers import GRADIENT_MARK
from tremula.ir.step import CapturedStep


def mark_gradients_early(step: CapturedStep) -> CapturedStep:
    """Move marks of gradients, and views between, behind what computes them."""
    for mark in list(step.graph.nodes):
        if mark.target is GRADIENT_MARK:
            chain = [mark]
            while _shows_another(source := operand(chain[-1])):
                chain.append(source)
            place = source
            for node in reversed(chain if source.op == "call_function" else ()):
                place.append(node)
                place = node
    return step


def _shows_another(node: fx.Node) -> bool:
    """Whether a node computes nothing: a view, or one of several results."""
    if node.op != "call_function":
        return False
    return is_view(node.target) or node.target is operator.getitem
