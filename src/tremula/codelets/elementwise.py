"""Vector assignments that are loops over elements: which ones, and one element of them."""

import ast

from tremula.codelets.function_source import Known, dotted_name
from tremula.codelets.kinds import ALLOCATIONS, KindTable


def is_elementwise(target: ast.expr, value: ast.expr, kinds: KindTable | None) -> bool:
    """Is this `vector[:] = expression` where each element depends on the same element only?"""
    if kinds is None or not isinstance(target, ast.Subscript):
        return False
    is_whole = isinstance(target.slice, ast.Slice) and not any(
        (target.slice.lower, target.slice.upper, target.slice.step)
    )
    is_vector = isinstance(target.value, ast.Name | ast.Attribute)
    return is_whole and is_vector and _has_plain_vectors(value, kinds)


def _has_plain_vectors(node: ast.expr, kinds: KindTable) -> bool:
    """Vectors occur only by name, below operators and functions of numbers."""
    if kinds.of(node).rank == 0:
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        return not any(kinds.of(a).rank for c in calls for a in c.args)
    if isinstance(node, ast.Name | ast.Attribute):
        return True
    if isinstance(node, ast.BinOp):
        return _has_plain_vectors(node.left, kinds) and _has_plain_vectors(node.right, kinds)
    if isinstance(node, ast.UnaryOp):
        return _has_plain_vectors(node.operand, kinds)
    if isinstance(node, ast.Call):
        bound = kinds.function.bindings.get(dotted_name(node.func) or "")
        is_unary = isinstance(bound, Known) and bound.where == "numpy" and len(node.args) <= 2
        is_made = isinstance(bound, Known) and bound.name in ALLOCATIONS
        return is_unary and not is_made and all(_has_plain_vectors(a, kinds) for a in node.args)
    return False


class PickElement(ast.NodeTransformer):
    """Vectors by name become their element `index`."""

    def __init__(self, kinds: KindTable, index: str) -> None:
        self.kinds, self.index = kinds, index

    def _picked(self, node: ast.expr) -> ast.expr:
        if self.kinds.of(node).rank == 0:
            return node
        return ast.Subscript(node, ast.Name(self.index, ast.Load()), ast.Load())

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._picked(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._picked(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return ast.Call(node.func, [self.visit(a) for a in node.args], [])
