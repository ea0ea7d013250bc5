"""Statements of a codelet → lines of its kernel, each noting the user's line it came from."""

import ast
from dataclasses import dataclass, field

from tremula.codelets.cost.counting import CountHelper, CycleCount
from tremula.codelets.kernel.expressions import BINARY, INPLACE, ExpressionLowering, call
from tremula.codelets.kernel.hoisting import Hoist
from tremula.codelets.python.function_source import Known, dotted_name
from tremula.codelets.python.kinds import ALLOCATIONS, KindTable
from tremula.codelets.python.nodes import walk
from tremula.codelets.spec import FieldKind, FieldSpec

Iteration = tuple[list[str], str, list[str]]  # lines before, trip count, lines per item


@dataclass
class Writer:
    """Writes the statements of one function. `returns` is the text of a plain `return`."""

    lowering: ExpressionLowering
    returns: str
    return_value: str = "{}"  # how a returned expression is written
    before_return: str = ""  # what must happen before every return
    return_line: str = "return {}"  # how a function ends with a value
    needed: frozenset[str] | None = None  # if given, loop items of other names are not fetched
    lines: list[str] = field(default_factory=list)
    n_temporaries: int = 0

    def write(self, statements: list[ast.stmt], depth: int) -> None:
        n_before = len(self.lines)
        for statement in statements:
            writer = getattr(self, f"_write_{type(statement).__name__}")
            writer(statement, depth)
        if len(self.lines) == n_before:
            self._line("pass", depth, None)

    def _line(self, text: str | ast.AST, depth: int, node: ast.AST | None) -> None:
        if isinstance(text, ast.AST):
            text = ast.unparse(ast.fix_missing_locations(text))
        line = getattr(node, "lineno", None)
        note = f"  # {self.lowering.function.name}:{line}" if line else ""
        self.lines.append("    " * depth + text + note)

    def _text(self, node: ast.expr) -> str:
        return ast.unparse(ast.fix_missing_locations(node))

    def _temporary(self) -> str:
        self.n_temporaries += 1
        return f"_k_t{self.n_temporaries}"

    # -- assignment

    def _write_Assign(self, node: ast.Assign, depth: int) -> None:
        for target in node.targets:
            if is_elementwise(target, node.value, self.lowering.kinds):
                self._assign_elements(target, node, depth)
            else:
                self._assign(target, node.value, depth, node)

    def _assign_elements(self, target: ast.expr, node: ast.Assign, depth: int) -> None:
        """`self.out[:] = self.a * k` as a loop: no temporary vectors, and it vectorises."""
        assert isinstance(target, ast.Subscript)
        kinds, index = self.lowering.kinds, self._temporary()
        assert kinds is not None
        base = self._text(self.lowering.visit(target.value))
        picking = PickElement(kinds, index)
        value = self.lowering.visit(picking.visit(_as_read(node.value)))
        self._line(f"for {index} in range(len({base})):", depth, node)
        self._line(f"{base}[{index}] = {self.lowering.element_text(base, value)}", depth + 1, node)

    def _write_AnnAssign(self, node: ast.AnnAssign, depth: int) -> None:
        if node.value is None or not node.simple:
            raise self.lowering.function.error("an annotation without use", node, "remove it")
        self._assign(node.target, node.value, depth, node)

    def _assign(self, target: ast.expr, value: ast.expr, depth: int, node: ast.stmt) -> None:
        lowering = self.lowering
        if isinstance(target, ast.Name):
            self._line(f"{target.id} = {self._text(self._as_kind(target, value))}", depth, node)
        elif isinstance(target, ast.Tuple):
            if not all(isinstance(t, ast.Name) for t in target.elts):
                raise lowering.function.error(
                    "only names can be unpacked into", node, "assign fields one by one"
                )
            names = ", ".join(t.id for t in target.elts)  # pyright: ignore[reportAttributeAccessIssue]
            self._line(f"{names} = {self._text(lowering.visit(value))}", depth, node)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
            self._assign_slice(target, value, depth, node)
        else:
            self._store(target, lowering.visit(value), depth, node)

    def _assign_slice(
        self, target: ast.Subscript, value: ast.expr, depth: int, node: ast.stmt
    ) -> None:
        lowering = self.lowering
        if lowering.list_field(target.value) is not None or lowering.kinds is None:
            self._store(target, lowering.visit(value), depth, node)
            return
        name = lowering.names.vectors("assign" if lowering.kinds.of(value).rank else "fill")
        place = lowering.visit(_as_read(target))
        rounding = lowering.names.rounding
        self._line(call(name, place, lowering.visit(value), *rounding), depth, node)

    def _as_kind(self, target: ast.Name, value: ast.expr) -> ast.expr:
        """`total = 0` starts a float sum as a float, so that the variable has one type."""
        kinds = self.lowering.kinds
        is_integer = isinstance(value, ast.Constant) and type(value.value) is int
        if kinds and is_integer and kinds.names[target.id].base == "float":
            value = ast.Constant(float(value.value))  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
        return self.lowering.visit(value)

    def _store(self, target: ast.expr, value: ast.expr, depth: int, node: ast.stmt) -> None:
        lowering = self.lowering
        if isinstance(target, ast.Attribute):
            spec = lowering.use(target.attr)
            pointer, index = lowering.place_of(spec)
            self._line(lowering.stored(spec, pointer, index, value), depth, node)
            return
        assert isinstance(target, ast.Subscript), target
        spec = lowering.list_field(target.value)
        if spec is not None and spec.kind is FieldKind.SCALAR_LIST:
            place = lowering.list_place(spec, lowering.list_index(spec, target.slice))
            self._line(lowering.stored(spec, *place, value), depth, node)
            return
        if spec is not None:
            raise lowering.function.error(
                f"'self.{spec.name}[i]' cannot be assigned as a whole", node,
                f"write self.{spec.name}[i][:] = … or its elements",
            )  # fmt: skip
        place_text = f"{self._text(lowering.visit(target.value))}"
        index_text = self._text(lowering.visit(target.slice))
        element = lowering.element_text(place_text, value)
        self._line(f"{place_text}[{index_text}] = {element}", depth, node)

    def _write_AugAssign(self, node: ast.AugAssign, depth: int) -> None:
        lowering = self.lowering
        value = lowering.visit(node.value)
        read = _as_read(node.target)
        if isinstance(node.target, ast.Name):
            operation = INPLACE.get(type(node.op)) or BINARY[type(node.op)]
            name = node.target.id
            result = call(lowering.names.native(operation), name, value, *lowering.names.rounding)
            self._line(f"{name} = {self._text(result)}", depth, node)
            return
        operation = lowering.names.native(BINARY[type(node.op)])
        result = call(operation, lowering.visit(read), value, *lowering.names.rounding)
        self._store(node.target, result, depth, node)

    # -- control

    def _write_If(self, node: ast.If, depth: int) -> None:
        self._line(f"if {self._text(self.lowering.visit(node.test))}:", depth, node)
        self.write(node.body, depth + 1)
        if node.orelse:
            self._line("else:", depth, None)
            self.write(node.orelse, depth + 1)

    def _write_While(self, node: ast.While, depth: int) -> None:
        self._line(f"while {self._text(self.lowering.visit(node.test))}:", depth, node)
        self.write(node.body, depth + 1)

    def _write_For(self, node: ast.For, depth: int) -> None:
        if known_call(self.lowering, node.iter) == "range":
            head = f"for {self._loop_name(node.target)} in "
            self._line(f"{head}{self._text(self.lowering.visit(node.iter))}:", depth, node)
        else:
            index = self._temporary()
            setup, length, items = self._iteration(node.target, node.iter, index)
            for line in setup:
                self._line(line, depth, node)
            self._line(f"for {index} in range({length}):", depth, node)
            for line in items:
                self._line(line, depth + 1, node)
        self.write(node.body, depth + 1)

    def _loop_name(self, target: ast.expr) -> str:
        if not isinstance(target, ast.Name):
            raise self.lowering.function.error(
                "a loop variable must be a name here", target, "unpack inside the loop"
            )
        return target.id

    def _iteration(self, target: ast.expr, iterated: ast.expr, index: str) -> Iteration:
        """Lines before a loop, its trip count, and the lines that fetch one item."""
        lowering, name = self.lowering, known_call(self.lowering, iterated)
        if name in ("enumerate", "zip", "reversed"):
            assert isinstance(iterated, ast.Call)
            return getattr(self, f"_iterate_{name}")(target, iterated, index)
        spec = lowering.list_field(iterated)
        if spec is not None:
            item = self._text(lowering.list_item(spec, ast.Name(index, ast.Load())))
            return [], f"_k_n_{spec.name}", self._fetched(target, item)
        sequence = self._temporary()
        setup = [f"{sequence} = {self._text(lowering.visit(iterated))}"]
        return setup, f"len({sequence})", self._fetched(target, f"{sequence}[{index}]")

    def _fetched(self, target: ast.expr, item: str) -> list[str]:
        """The line that fetches a loop's item; empty if it is not needed."""
        name = self._loop_name(target)
        return [f"{name} = {item}"] if self.needed is None or name in self.needed else []

    def _iterate_enumerate(self, target: ast.expr, node: ast.Call, index: str) -> Iteration:
        if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
            raise self.lowering.function.error(
                "enumerate gives an index and a value", node, "write for i, x in enumerate(…)"
            )
        setup, length, items = self._iteration(target.elts[1], node.args[0], index)
        start = self._text(self.lowering.visit(node.args[1])) if len(node.args) > 1 else "0"
        return setup, length, [f"{self._loop_name(target.elts[0])} = {index} + {start}", *items]

    def _iterate_zip(self, target: ast.expr, node: ast.Call, index: str) -> Iteration:
        parts = target.elts if isinstance(target, ast.Tuple) else []
        if len(parts) != len(node.args) or not parts:
            raise self.lowering.function.error(
                f"zip gives {len(node.args)} values, got {len(parts)} names", node,
                "name each of them",
            )  # fmt: skip
        pieces = [self._iteration(t, s, index) for t, s in zip(parts, node.args, strict=True)]
        lengths = [p[1] for p in pieces]
        length = lengths[0] if len(lengths) == 1 else f"min({', '.join(lengths)})"
        return [x for p in pieces for x in p[0]], length, [x for p in pieces for x in p[2]]

    def _iterate_reversed(self, target: ast.expr, node: ast.Call, index: str) -> Iteration:
        backwards = self._temporary()
        setup, length, items = self._iteration(target, node.args[0], backwards)
        return setup, length, [f"{backwards} = {length} - 1 - {index}", *items]

    def _write_Return(self, node: ast.Return, depth: int) -> None:
        value = self.returns
        if node.value is not None:
            value = self.return_value.format(self._text(self.lowering.visit(node.value)))
        if self.before_return:
            self._line(f"_k_result = {value}", depth, node)
            self._line(self.before_return, depth, None)
            value = "_k_result"
        self._line(self.return_line.format(value), depth, node)

    def _write_Expr(self, node: ast.Expr, depth: int) -> None:
        if isinstance(node.value, ast.Call):
            self._line(self.lowering.visit(node.value), depth, node)

    def _write_Pass(self, node: ast.Pass, depth: int) -> None:
        self._line("pass", depth, node)

    def _write_Break(self, node: ast.Break, depth: int) -> None:
        self._line("break", depth, node)

    def _write_Continue(self, node: ast.Continue, depth: int) -> None:
        self._line("continue", depth, node)

    def _write_Hoist(self, node: Hoist, depth: int) -> None:
        lowering, name = self.lowering, node.spec.name
        lowering.use(name)
        load = lowering.names.memory("load")
        index = self._text(lowering.list_index(node.spec, node.index))
        self._line(f"{node.name} = {index}", depth, node)
        is_there = f"if 0 <= {node.name} < _k_n_{name} else 0"
        parts = [
            f"{load}(_k_c_{name}_{role}, _k_s_{name} + {node.name}) {is_there}"
            for role in ("offset", "length")
        ]
        values = [ast.parse(part, mode="eval").body for part in parts]
        made = lowering.vector_at(node.spec, f"_k_p_{node.spec.type.name}", *values)
        self._line(f"{node.name}_x = {self._text(made)}", depth, node)

    # -- counting

    def _write_CycleCount(self, node: CycleCount, depth: int) -> None:
        parts = [str(node.n_slots)] if node.n_slots or not node.terms else []
        for expression, n_slots in node.terms:
            parts.append(f"{self._length(expression)} * {n_slots}")
        self._line(f"_k_n += {' + '.join(parts)}", depth, None)

    def _length(self, expression: ast.expr) -> str:
        spec = self.lowering.list_field(expression)
        if spec is not None:
            return f"_k_n_{spec.name}"
        copy = ast.parse(ast.unparse(expression), mode="eval").body
        return f"len({self._text(self.lowering.visit(copy))})"

    def _write_CountHelper(self, node: CountHelper, depth: int) -> None:
        arguments = [self.lowering.visit(a) for a in node.arguments]
        name = cost_name(self.lowering.names.helpers[id(node.helper)])
        self._line(f"_k_n += {self._text(call(name, *arguments))}", depth, None)


def cost_name(helper_name: str) -> str:
    """The name of the generated function that returns a helper's cycles."""
    return f"{helper_name}_cost"


def known_call(lowering: ExpressionLowering, node: ast.expr) -> str:
    """The name of the built-in function that `node` calls, or an empty string."""
    if not isinstance(node, ast.Call):
        return ""
    bound = lowering.function.bindings.get(dotted_name(node.func) or "")
    return bound.name if isinstance(bound, Known) and bound.where == "builtin" else ""


def _as_read(target: ast.expr) -> ast.expr:
    """An assignment's target as an expression that reads it."""
    copy = ast.parse(ast.unparse(target), mode="eval").body
    return ast.copy_location(copy, target)


def field_setup(spec: FieldSpec, lowering: ExpressionLowering, has_arena: bool = True) -> list[str]:
    """Lines at the start of a row that find where a field is."""
    load, name = lowering.names.memory("load"), spec.name

    def column(role: str, index: str = "_k_v") -> str:
        return f"{load}(_k_c_{name}_{role}, {index})"

    lines = []
    if spec.is_edge and spec.type.requires_metadata:
        byte = f"{load}(_k_p_UNSIGNED_CHAR, {column('metadata')})"
        lines.append(f"_k_m_{name} = {byte if has_arena else 0}")
    if spec.kind is FieldKind.SCALAR:
        lines.append(f"_k_at_{name} = {column('offset')}")
    elif spec.kind is FieldKind.VECTOR:
        parts = [ast.parse(column(r), mode="eval").body for r in ("offset", "length")]
        made = lowering.vector_at(spec, f"_k_p_{spec.type.name}", *parts)
        lines.append(f"_k_x_{name} = {ast.unparse(ast.fix_missing_locations(made))}")
    elif spec.kind is not FieldKind.STATE:
        lines.append(f"_k_s_{name} = {column('start')}")
        lines.append(f"_k_n_{name} = {column('start', '_k_v + 1')} - _k_s_{name}")
        if spec.kind is FieldKind.STATE_VECTOR:
            vector = lowering.names.memory("vector")
            arguments = f"_k_c_{name}_value, _k_s_{name}, _k_n_{name}"
            lines.append(f"_k_x_{name} = {vector}({arguments})")
    return lines


# -- Vector assignments that are loops over elements: which ones, and one element of them ----------


def is_elementwise(target: ast.expr, value: ast.expr, kinds: KindTable | None) -> bool:
    """Whether this is `vector[:] = expression`, each element depending on the same element only."""
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
        calls = [n for n in walk(node) if isinstance(n, ast.Call)]
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
