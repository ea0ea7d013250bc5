"""Slots of straight-line code: what one group of statements, or one expression, costs."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from tremula.base.types import Type
from tremula.codelets.cost import slots
from tremula.codelets.cost.slots import Slots
from tremula.codelets.python.function_source import FunctionSource, Known, dotted_name
from tremula.codelets.python.kinds import KindTable, ValueKind
from tremula.codelets.python.nodes import walk

_CHEAP = frozenset("min max abs absolute minimum maximum fabs".split())
_MULTI_OP = frozenset("dot sum prod max min argmax argmin".split())


@dataclass
class Price:
    """A block's slots, per-element slots of whole-vector operations, and calls to price later."""

    slots: Slots = slots.NOTHING
    terms: list[tuple[ast.expr, Slots]] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)


class Pricer:
    """Prices code of one function, whose kinds are known."""

    def __init__(self, function: FunctionSource, kinds: KindTable, branch: Slots) -> None:
        self.function, self.kinds, self.branch = function, kinds, branch

    def of_statements(self, statements: list[ast.stmt]) -> Price:
        price = Price()
        for statement in statements:
            self._statement(statement, price)
        return price

    def of_test(self, test: ast.expr) -> Price:
        """A condition and the branch on it."""
        price = Price()
        self._add(test, price)
        price.slots += self.branch
        for node in walk(test):
            if isinstance(node, ast.Compare) and self._is_float(node):
                price.slots += slots.COMPARE_TO_MAIN
        return price

    def of_loop(self, node: ast.For) -> tuple[Price, Slots]:
        """Setting up a for loop, and fetching its items in each iteration."""
        price = Price(slots.LOOP_SETUP)
        return price, self._items(node.iter, price)

    def _items(self, iterated: ast.expr, price: Price) -> Slots:
        bound = self._called(iterated)
        if isinstance(iterated, ast.Call) and isinstance(bound, Known):
            if bound.name == "range":
                for argument in iterated.args:
                    self._add(argument, price)
                return Slots()
            if bound.name in ("zip", "enumerate", "reversed"):
                total = Slots()
                for argument in iterated.args if bound.name == "zip" else iterated.args[:1]:
                    total += self._items(argument, price)
                return total
        kind = self.kinds.of(iterated)
        if not isinstance(iterated, ast.Name | ast.Attribute):
            self._add(iterated, price)
        return slots.LOAD + slots.LOAD if kind.rank == 2 else slots.LOAD

    # -- statements

    def _statement(self, node: ast.stmt, price: Price) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            self._assign(targets, node.value, price)
        elif isinstance(node, ast.AugAssign):
            read = ast.parse(ast.unparse(node.target), mode="eval").body
            self._assign([node.target], ast.BinOp(read, node.op, node.value), price)
        elif isinstance(node, ast.Return):
            if node.value is not None:
                self._add(node.value, price)
        elif isinstance(node, ast.Break | ast.Continue):
            price.slots += self.branch
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._add(node.value, price)

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr, price: Price) -> None:
        whole = [t for t in targets if self._is_whole(t)]
        if whole:
            each = slots.STORE + self._each(value, price)
            price.terms.append((_loaded(whole[0]), each))
        else:
            self._add(value, price)
        for target in targets:
            if not isinstance(target, ast.Name | ast.Tuple) and target not in whole:
                self._target(target, price)

    def _is_whole(self, target: ast.expr) -> bool:
        return isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice)

    def _target(self, target: ast.expr, price: Price) -> None:
        kind = self.kinds.of(target)
        price.slots += slots.STORE if kind.n_bytes >= 4 else slots.SUBWORD_STORE
        if isinstance(target, ast.Subscript):
            self._index(target, price)

    # -- expressions

    def _add(self, node: ast.expr, price: Price) -> None:
        if self.kinds.of(node).rank and isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call):
            length = self._first_vector(node)
            if length is not None:
                price.terms.append((length, self._each(node, price)))
                return
        handler = getattr(self, f"_add_{type(node).__name__}", None)
        if handler is not None:
            handler(node, price)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._add(child, price)

    def _add_Attribute(self, node: ast.Attribute, price: Price) -> None:
        name = dotted_name(node) or ""
        is_field = name.startswith("self.") and node.attr in self.kinds.fields
        if is_field and self.kinds.of(node).rank == 0:
            price.slots += slots.LOAD

    def _add_Subscript(self, node: ast.Subscript, price: Price) -> None:
        base = self.kinds.of(node.value)
        if not isinstance(node.slice, ast.Slice):
            price.slots += slots.LOAD + slots.LOAD if base.rank == 2 else slots.LOAD
        self._index(node, price)

    def _index(self, node: ast.Subscript, price: Price) -> None:
        """Loads add a constant to an address for free; other index arithmetic is priced."""
        if isinstance(node.value, ast.Subscript):
            self._add(node.value, price)
        index = node.slice
        while isinstance(index, ast.BinOp) and isinstance(index.op, ast.Add | ast.Sub):
            if not isinstance(index.right, ast.Constant):
                break
            index = index.left
        if not isinstance(index, ast.Slice):
            self._add(index, price)

    def _add_BinOp(self, node: ast.BinOp, price: Price) -> None:
        self._add(node.left, price)
        self._add(node.right, price)
        price.slots += self._operation(node)

    def _operation(self, node: ast.BinOp) -> Slots:
        left, right = self.kinds.of(node.left), self.kinds.of(node.right)
        kind = self.kinds.of(node)
        if kind.base in ("int", "bool"):
            return _integer_operation(node)
        name = {ast.Div: "div", ast.Mod: "mod", ast.FloorDiv: "floordiv"}.get(type(node.op), "")
        total = _function_slots(name, kind) if name else slots.FLOAT
        if isinstance(node.op, ast.Pow):
            total = _power_slots(node, kind)
        for operand, part in ((left, node.left), (right, node.right)):
            total += _conversion(operand, kind, part)
        return total

    def _add_UnaryOp(self, node: ast.UnaryOp, price: Price) -> None:
        self._add(node.operand, price)
        if not isinstance(node.operand, ast.Constant):
            is_float = self.kinds.of(node).base in ("float", "half")
            price.slots += slots.FLOAT if is_float else slots.INTEGER

    def _add_Compare(self, node: ast.Compare, price: Price) -> None:
        for value in (node.left, *node.comparators):
            self._add(value, price)
        each = slots.FLOAT if self._is_float(node) else slots.INTEGER
        for _ in node.ops:
            price.slots += each

    def _is_float(self, node: ast.Compare) -> bool:
        values = (node.left, *node.comparators)
        return any(self.kinds.of(v).base in ("float", "half") for v in values)

    def _add_BoolOp(self, node: ast.BoolOp, price: Price) -> None:
        for value in node.values:
            self._add(value, price)
        for _ in node.values[1:]:
            price.slots += slots.INTEGER

    def _add_IfExp(self, node: ast.IfExp, price: Price) -> None:
        """Both sides are computed and one is selected, without a branch."""
        for part in (node.test, node.body, node.orelse):
            self._add(part, price)
        price.slots += slots.SELECT

    # -- calls

    def _called(self, node: ast.expr) -> object:
        if not isinstance(node, ast.Call):
            return None
        return self.function.bindings.get(dotted_name(node.func) or "")

    def _add_Call(self, node: ast.Call, price: Price) -> None:
        target = self._called(node)
        if isinstance(target, Known) and target.name == "len":
            if isinstance(node.args[0], ast.Subscript):
                price.slots += slots.LOAD
            return
        if isinstance(target, Known) and target.where == "numpy" and target.name in _MULTI_OP:
            self._reduction(node, target.name, price)
            return
        for argument in node.args:
            self._add(argument, price)
        if isinstance(target, FunctionSource):
            price.calls.append(node)
        elif isinstance(target, Type):
            wanted = self.kinds.of(node)
            price.slots += _conversion(self.kinds.of(node.args[0]), wanted, node.args[0])
        elif isinstance(target, Known):
            price.slots += self._known(target, node)

    def _known(self, target: Known, node: ast.Call) -> Slots:
        if target.where == "random":
            return slots.RANDOM[target.name]
        if not node.args:
            return Slots()
        kind = self.kinds.of(node.args[0])
        if target.name in ("int", "float", "bool"):
            return _conversion(kind, self.kinds.of(node), node.args[0])
        if target.name in _CHEAP:
            one = slots.FLOAT if self.kinds.of(node).base in ("float", "half") else slots.INTEGER
            return sum((one for _ in node.args[1:-1]), one)
        name = {"arctan2": "atan2", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
                "power": "pow"}.get(target.name, target.name)  # fmt: skip
        return _function_slots(name, kind) + _conversion(kind, self.kinds.of(node), node.args[0])

    def _reduction(self, node: ast.Call, name: str, price: Price) -> None:
        """np.dot, np.sum, …: for each element its loads and one or two operations."""
        each = Slots()
        for argument in node.args:
            each += self._each(argument, price)
        each += slots.FLOAT + (slots.FLOAT if name == "dot" else Slots())
        price.terms.append((self._first_vector(node) or node.args[0], each))

    def _each(self, node: ast.expr, price: Price) -> Slots:
        """Slots per element of a whole-vector expression; its scalar parts go to `price`."""
        if self.kinds.of(node).rank == 0:
            self._add(node, price)
            return Slots()
        if isinstance(node, ast.BinOp):
            parts = self._each(node.left, price) + self._each(node.right, price)
            return parts + self._operation(node)
        if isinstance(node, ast.UnaryOp):
            return self._each(node.operand, price) + slots.FLOAT
        if isinstance(node, ast.Call):
            total, target = Slots(), self._called(node)
            for argument in node.args:
                total += self._each(argument, price)
            return total + (self._known(target, node) if isinstance(target, Known) else Slots())
        return slots.LOAD

    def _first_vector(self, node: ast.expr) -> ast.expr | None:
        """Some vector of the expression, whose length is the expression's."""
        for part in walk(node):
            is_place = isinstance(part, ast.Name | ast.Attribute | ast.Subscript)
            if is_place and self.kinds.of(part).rank == 1:
                return part
        return None


def _loaded(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body


def _function_slots(name: str, kind: ValueKind) -> Slots:
    for_float, for_half = slots.FUNCTIONS.get(name, (1, 1))
    n_slots = for_half if kind.base == "half" else for_float
    if n_slots >= slots.ROUTINE_SLOTS:
        return slots.routine(f"{name}_{kind.base}", aux=n_slots)
    is_single = name in slots.SINGLE_INSTRUCTIONS and kind.base == "float"
    return Slots(aux=n_slots, n_saved=n_slots - 1 if is_single else 0)


def _integer_operation(node: ast.BinOp) -> Slots:
    if not isinstance(node.op, ast.FloorDiv | ast.Mod):
        return slots.INTEGER
    divisor = node.right.value if isinstance(node.right, ast.Constant) else 0
    if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
        return slots.SHIFT_DIVIDE
    is_remainder = isinstance(node.op, ast.Mod)
    return slots.INTEGER_REMAINDER if is_remainder else slots.INTEGER_DIVIDE


def _power_slots(node: ast.BinOp, kind: ValueKind) -> Slots:
    exponent = node.right.value if isinstance(node.right, ast.Constant) else None
    if exponent in (2, 3, 4):
        return Slots(aux=int(exponent) - 1)
    return _function_slots("pow", kind)


def _conversion(source: ValueKind, wanted: ValueKind, node: ast.expr) -> Slots:
    if isinstance(node, ast.Constant) or source.base == wanted.base:
        return Slots()
    is_integer = source.base in ("int", "bool"), wanted.base in ("int", "bool")
    if all(is_integer):
        return Slots()
    return slots.CONVERT_INTEGER if any(is_integer) else slots.CONVERT_HALF
