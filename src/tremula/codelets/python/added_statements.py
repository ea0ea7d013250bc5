"""Statements that only the compiler of codelets adds: counting cycles, fetching sub-vectors."""

import ast

from tremula.codelets.python.function_source import FunctionSource
from tremula.codelets.spec import FieldSpec


class Count(ast.stmt):
    """A statement that adds cycles: `n_slots`, plus `n_slots_each` times the length of a vector."""

    _fields = ()

    def __init__(self, n_slots: int, terms: tuple[tuple[ast.expr, int], ...] = ()) -> None:
        super().__init__()
        self.n_slots, self.terms = n_slots, terms


class CountHelper(ast.stmt):
    """A statement that adds the cycles of a helper call, without making the call."""

    _fields = ()

    def __init__(self, helper: FunctionSource, arguments: list[ast.expr]) -> None:
        super().__init__()
        self.helper, self.arguments = helper, arguments


class Hoist(ast.stmt):
    """A statement that fetches sub-vector `index` of a field; out of range it is empty."""

    _fields = ()

    def __init__(self, name: str, spec: FieldSpec, index: ast.expr) -> None:
        super().__init__()
        self.name, self.spec, self.index = name, spec, index
