"""`walk` over syntax trees, compared with Python's."""

import ast
from pathlib import Path

import pytest

import tremula.codelets
from tremula.codelets.python.nodes import walk

SOURCES = sorted(Path(tremula.codelets.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES[::4], ids=lambda path: path.stem)
def test_nodes_are_those_of_python_in_its_order(path):
    """Also of a tree whose expressions were replaced."""
    tree = ast.parse(path.read_text())
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.BinOp):
            node.left = ast.Name("x", ast.Load())
    assert [id(node) for node in walk(tree)] == [id(node) for node in ast.walk(tree)]
