"""Fold what is known before compiling.

`if T is half:` and `if HAS_BIAS:` keep one branch, and `self.n_workers` becomes a number.
"""

import ast
import operator

from tremula.base.types import Type
from tremula.codelets.python.function_source import FunctionSource, dotted_name
from tremula.codelets.python.nodes import walk

_UNKNOWN = object()
_COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne,
}  # fmt: skip


def folded_tree(function: FunctionSource) -> ast.FunctionDef:
    """The function's tree without the branches that can never run."""
    tree = _Folding(function).visit(function.tree())
    for node in walk(tree):
        if isinstance(node, ast.Is | ast.IsNot | ast.In | ast.NotIn | ast.MatMult):
            raise function.error(
                "'is', 'in' and '@' are not defined on tiles", tree,
                "compare with ==, and write a loop or np.dot",
            )  # fmt: skip
    return tree


class _Folding(ast.NodeTransformer):
    def __init__(self, function: FunctionSource) -> None:
        self.function = function

    def visit_If(self, node: ast.If) -> object:
        value = self._value(node.test)
        if value is _UNKNOWN:
            return self.generic_visit(node)
        branch = [self.visit(s) for s in (node.body if value else node.orelse)]
        flat = [t for s in branch for t in (s if isinstance(s, list) else [s])]
        return flat or [ast.copy_location(ast.Pass(), node)]

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        value = self._value(node.test)
        if value is _UNKNOWN:
            return self.generic_visit(node)
        return self.visit(node.body if value else node.orelse)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if self.function.is_n_workers(node):
            return ast.copy_location(ast.Constant(self.function.n_workers), node)
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`self.n_workers + 1` is a number, too."""
        more = node.right.value if isinstance(node.right, ast.Constant) else None
        of_workers = isinstance(node.op, ast.Add) and self.function.is_n_workers(node.left)
        if of_workers and isinstance(more, int):
            return ast.copy_location(ast.Constant(self.function.n_workers + more), node)
        return self.generic_visit(node)

    def _value(self, node: ast.expr) -> object:
        """The value of an expression of constants and types, or _UNKNOWN."""
        if isinstance(node, ast.Constant):
            return node.value
        if self.function.is_n_workers(node):
            return self.function.n_workers
        if isinstance(node, ast.Name | ast.Attribute):
            bound = self.function.bindings.get(dotted_name(node) or "", _UNKNOWN)
            return bound if isinstance(bound, Type | bool | int | float | tuple) else _UNKNOWN
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            value = self._value(node.operand)
            return value if value is _UNKNOWN else not value
        if isinstance(node, ast.BoolOp):
            return self._bool_value(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self._value(node.left), self._value(node.comparators[0])
            compare = _COMPARE.get(type(node.ops[0]))
            if compare and left is not _UNKNOWN and right is not _UNKNOWN:
                return compare(left, right)
        return _UNKNOWN

    def _bool_value(self, node: ast.BoolOp) -> object:
        values = [self._value(v) for v in node.values]
        if _UNKNOWN in values:
            return _UNKNOWN
        return all(values) if isinstance(node.op, ast.And) else any(values)
