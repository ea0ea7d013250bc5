"""What tests of the house rules read of every source file: its statements, parsed once."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT / "tools"))
import house  # noqa: E402 - a script, not of a package

tree_of = house.tree_of


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement of a file, nested ones too; expressions, most of a tree, are not visited."""
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.expr):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in statements(tree_of(path)) if isinstance(node, kinds)]
