"""Nodes of a syntax tree. Analyses of codelets consist of little else than looking through them."""

import ast


def walk(tree: ast.AST) -> list[ast.AST]:
    """What `ast.walk` gives, in its order and a third of its time."""
    result = [tree]
    for node in result:  # it grows meanwhile
        values = node.__dict__
        for name in node._fields:
            value = values.get(name)
            if isinstance(value, ast.AST):
                result.append(value)
            elif isinstance(value, list):
                result += [part for part in value if isinstance(part, ast.AST)]
    return result
