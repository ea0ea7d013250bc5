"""Which expressions of a codelet are integers, floats, halves or vectors: enough to price them.

Only the cost model uses this; Numba infers the types that code computes in. In

    row = self.rows[i]        # half, rank 1: rows is a list of vectors of half
    total = 0                 # int …
    for v in row:             # half, rank 0
        total = total + v     # … joined with half: half

a name has the join of everything assigned to it. `cost/taint.py` walks the same trees to ask
another question (does it depend on data?) and needs finished kinds for it. The two stay apart: they
share only the walk over assignments, and every rule in them differs.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from tremula.base.types import Type
from tremula.codelets.python.folding import folded_tree
from tremula.codelets.python.function_source import FunctionSource, Known, dotted_name
from tremula.codelets.python.nodes import walk
from tremula.codelets.spec import FieldKind, FieldSpec

_ORDER = ("bool", "int", "half", "float")  # of two, the later one wins
_RANK = {
    FieldKind.SCALAR: 0, FieldKind.STATE: 0, FieldKind.VECTOR: 1, FieldKind.STATE_VECTOR: 1,
    FieldKind.SCALAR_LIST: 1, FieldKind.VECTOR_LIST: 2,
}  # fmt: skip
_INTEGER_CALLS = frozenset("len int range floor ceil trunc argmax argmin round".split())
_BOOL_CALLS = frozenset("bool isnan isinf isfinite".split())
_REDUCTIONS = frozenset("dot sum max min prod argmax argmin".split())
ALLOCATIONS = frozenset("zeros ones empty full zeros_like empty_like".split())


@dataclass(frozen=True, slots=True)
class ValueKind:
    """`base` is one of bool, int, half, float; rank 0 a number, 1 a vector, 2 a list of vectors."""

    base: str
    rank: int = 0
    n_bytes: int = 4

    def joined(self, other: "ValueKind") -> "ValueKind":
        wins = max(self, other, key=lambda k: _ORDER.index(k.base))
        return ValueKind(wins.base, max(self.rank, other.rank), wins.n_bytes)


INT, FLOAT, BOOL, HALF = (
    ValueKind("int"),
    ValueKind("float"),
    ValueKind("bool", 0, 1),
    ValueKind("half", 0, 2),
)


def kind_of_type(element_type: Type, rank: int = 0) -> ValueKind:
    if element_type.name == "HALF":
        return ValueKind("half", rank, element_type.n_bytes)
    base = "float" if element_type.is_floating else "int"
    return ValueKind("bool" if element_type.name == "BOOL" else base, rank, element_type.n_bytes)


_TELLING = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.Return  # kinds of names


class KindTable:
    """Kinds of the local names of one function, given those of its parameters."""

    def __init__(
        self,
        function: FunctionSource,
        fields: Mapping[str, FieldSpec],
        parameters: Mapping[str, ValueKind],
        tree: ast.FunctionDef | None = None,
    ) -> None:
        self.function, self.fields = function, fields
        self.names: dict[str, ValueKind] = dict(parameters)
        self.result = BOOL
        self.tree = tree or folded_tree(function)
        nodes = [node for node in walk(self.tree) if isinstance(node, _TELLING)]
        for _ in range(3):  # enough for values to travel round the loops people write
            before = (dict(self.names), self.result)
            for node in nodes:
                self._learn(node)
            if before == (self.names, self.result):
                break

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
            self._join(node.target.id, self.of(value))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value)
        elif isinstance(node, ast.For):
            self._assign_loop(node.target, node.iter)
        elif isinstance(node, ast.Return) and node.value is not None:
            self.result = self.of(node.value)

    def _join(self, name: str, kind: ValueKind) -> None:
        known = self.names.get(name)
        self.names[name] = kind if known is None else known.joined(kind)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._join(target.id, self.of(value))
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, part in zip(target.elts, value.elts, strict=False):
                self._assign(one, part)

    def _assign_loop(self, target: ast.expr, iterated: ast.expr) -> None:
        for one, kind in loop_kinds(self, target, iterated):
            self._join(one, kind)

    def of(self, node: ast.expr) -> ValueKind:
        """The kind of an expression; float if nothing better is known."""
        if isinstance(node, ast.Constant):
            return _kind_of_number(node.value)
        if isinstance(node, ast.Name | ast.Attribute):
            return self._of_name(node)
        if isinstance(node, ast.Subscript):
            base = self.of(node.value)
            is_slice = isinstance(node.slice, ast.Slice)
            return base if is_slice else ValueKind(base.base, max(base.rank - 1, 0), base.n_bytes)
        if isinstance(node, ast.BinOp):
            kind = self.of(node.left).joined(self.of(node.right))
            is_whole = kind.base in ("int", "bool") and isinstance(node.op, ast.Div)
            return ValueKind("float", kind.rank) if is_whole else kind
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            return self.of(node.operand)
        if isinstance(node, ast.IfExp):
            return self._joined([node.body, node.orelse])
        if isinstance(node, ast.Call):
            return self._of_call(node)
        is_truth = isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp)
        return BOOL if is_truth else FLOAT

    def _joined(self, nodes: list[ast.expr]) -> ValueKind:
        kind = self.of(nodes[0])
        for node in nodes[1:]:
            kind = kind.joined(self.of(node))
        return kind

    def _of_name(self, node: ast.expr) -> ValueKind:
        name = dotted_name(node) or ""
        if name.startswith("self."):
            target = self.fields.get(name[5:])
            return kind_of_type(target.type, _RANK[target.kind]) if target else INT
        if name in self.names:
            return self.names[name]
        bound = self.function.bindings.get(name)
        if isinstance(bound, tuple):
            kinds = [_kind_of_number(v) for v in bound]
            base = max((k.base for k in kinds), key=_ORDER.index)
            return ValueKind(base, 1)
        return _kind_of_number(bound)

    def _of_call(self, node: ast.Call) -> ValueKind:
        target = self.function.bindings.get(dotted_name(node.func) or "")
        if isinstance(target, Type):
            return kind_of_type(target)
        if isinstance(target, FunctionSource):
            return self.of_helper(target, node).result
        if isinstance(target, Known) and target.where == "random":
            return FLOAT if target.name in ("random_uniform", "random_normal") else INT
        if not isinstance(target, Known) or not node.args:
            return FLOAT
        return self._of_known(target, node)

    def _of_known(self, target: Known, node: ast.Call) -> ValueKind:
        is_numpy = target.where == "numpy"
        if target.name in _BOOL_CALLS:
            return BOOL
        if target.name in _INTEGER_CALLS and not (is_numpy and "arg" not in target.name):
            return INT
        if is_numpy and target.name in ALLOCATIONS:
            return ValueKind(self._allocated_base(node), 1)
        kind = self._joined(node.args)
        if is_numpy and target.name in _REDUCTIONS:
            return ValueKind(kind.base, 0, kind.n_bytes)
        if target.name in ("min", "max", "abs", "absolute", "minimum", "maximum", "pow", "sum"):
            return kind if target.name != "sum" else ValueKind(kind.base, 0, kind.n_bytes)
        return kind if kind.base == "half" else ValueKind("float", kind.rank)

    def _allocated_base(self, node: ast.Call) -> str:
        arguments = [k.value for k in node.keywords] or node.args[-1:]
        bound = self.function.bindings.get(dotted_name(arguments[0]) or "")
        return kind_of_type(bound).base if isinstance(bound, Type) else "float"

    def of_helper(self, helper: FunctionSource, call: ast.Call) -> "KindTable":
        """The kinds inside a helper function when called with these arguments."""
        names = [a.arg for a in helper.tree().args.args]
        kinds = dict(zip(names, map(self.of, call.args), strict=False))
        return KindTable(helper, {}, kinds)


def _kind_of_number(value: object) -> ValueKind:
    if isinstance(value, bool):
        return BOOL
    return INT if isinstance(value, int) else FLOAT


def loop_kinds(
    table: KindTable, target: ast.expr, iterated: ast.expr
) -> list[tuple[str, ValueKind]]:
    """Names a for loop assigns, with their kinds."""
    call = table.function.bindings.get(dotted_name(getattr(iterated, "func", iterated)) or "")
    name = call.name if isinstance(call, Known) else ""
    if isinstance(iterated, ast.Call) and name in ("enumerate", "zip", "reversed"):
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        sources = list(iterated.args)
        if name == "enumerate":
            counted = loop_kinds(table, parts[1], sources[0]) if len(parts) > 1 else []
            return [(parts[0].id, INT), *counted] if isinstance(parts[0], ast.Name) else counted
        if name == "reversed":
            return loop_kinds(table, target, sources[0])
        pairs = zip(parts, sources, strict=False)
        return [k for part, source in pairs for k in loop_kinds(table, part, source)]
    if not isinstance(target, ast.Name):
        return []
    if name == "range":
        return [(target.id, INT)]
    kind = table.of(iterated)
    return [(target.id, ValueKind(kind.base, max(kind.rank - 1, 0), kind.n_bytes))]
