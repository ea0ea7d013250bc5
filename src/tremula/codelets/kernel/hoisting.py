"""Take `self.rows[i]` out of inner loops that do not change `i`, so that they can be vectorised.

Before: for j in …: self.out[i][j] = self.rows[i][j]
After:  a = self.out[i]; b = self.rows[i]; for j in …: a[j] = b[j]

The fetch must be harmless even if the loop body would never have run: an index out of range gives
an empty vector (`Hoist`).
"""

import ast
from collections.abc import Mapping

from tremula.codelets.python.function_source import dotted_name
from tremula.codelets.python.nodes import walk
from tremula.codelets.spec import FieldKind, FieldSpec

_PLAIN_INDEX = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)
_LOOPS = (ast.For, ast.While)


class Hoist(ast.stmt):
    """A statement that fetches sub-vector `index` of a field, or an empty one if out of range."""

    _fields = ()

    def __init__(self, name: str, spec: FieldSpec, index: ast.expr) -> None:
        super().__init__()
        self.name, self.spec, self.index = name, spec, index


def hoisted(tree: ast.FunctionDef, fields: Mapping[str, FieldSpec]) -> list[ast.stmt]:
    """The body of a function with sub-vectors fetched before its innermost loops."""
    return _Hoisting(fields).visit(tree).body


class _Hoisting(ast.NodeTransformer):
    def __init__(self, fields: Mapping[str, FieldSpec]) -> None:
        self.fields, self.n_hoisted = fields, 0

    def visit_For(self, node: ast.For) -> object:
        if any(isinstance(n, _LOOPS) for s in node.body for n in walk(s)):
            return self.generic_visit(node)
        changed = {
            n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        replacing = _Replacing(self, changed)
        node.body = [replacing.visit(s) for s in node.body]
        fetched = [
            ast.copy_location(Hoist(name, self.fields[field], index), node)
            for (field, _), (name, index) in replacing.hoisted.items()
        ]
        return [*fetched, node]

    def new_name(self) -> str:
        self.n_hoisted += 1
        return f"_k_h{self.n_hoisted}"


class _Replacing(ast.NodeTransformer):
    """Replaces the sub-vectors that a loop does not change by names."""

    def __init__(self, hoisting: _Hoisting, changed: set[str]) -> None:
        self.hoisting, self.changed = hoisting, changed
        self.hoisted: dict[tuple[str, str], tuple[str, ast.expr]] = {}

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        name = dotted_name(node.value) or ""
        field = self.hoisting.fields.get(name[5:]) if name.startswith("self.") else None
        if field is None or field.kind is not FieldKind.VECTOR_LIST:
            return self.generic_visit(node)
        if not self._is_fixed(node.slice):
            return self.generic_visit(node)
        key = (field.name, ast.unparse(node.slice))
        if key not in self.hoisted:
            self.hoisted[key] = (self.hoisting.new_name(), node.slice)
        return ast.copy_location(ast.Name(f"{self.hoisted[key][0]}_x", ast.Load()), node)

    def _is_fixed(self, index: ast.expr) -> bool:
        parts = list(walk(index))
        names = {n.id for n in parts if isinstance(n, ast.Name)}
        return all(isinstance(n, _PLAIN_INDEX) for n in parts) and not names & self.changed
