"""Expressions of a codelet → expressions of its kernel: fields are memory, operators calls."""

import ast
import math
from collections.abc import Mapping

from tremula.base.types import Type
from tremula.codelets.python.function_source import FunctionSource, Known, dotted_name
from tremula.codelets.python.kinds import KindTable
from tremula.codelets.spec import Direction, FieldKind, FieldSpec

BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift",
    ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor",
}  # fmt: skip
INPLACE = {ast.Add: "iadd", ast.Sub: "isub", ast.Mult: "imul", ast.Div: "itruediv"}
_COMPARE = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
_UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert"}
_NUMPY_AS_MATH = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2"}
_TWO_NUMBERS = frozenset("atan2 hypot fmod copysign pow minimum maximum".split())
_ROUNDINGS = frozenset("floor ceil trunc rint".split())
_REDUCTIONS = frozenset("sum prod max min".split())
RANDOM_ARGUMENTS = {
    "random_state": 1,
    "set_random_state": 2,
    "seed_random": 2,
}  # others: 0
_MODULE_OF_TABLE = {
    "POINTER": "memory", "COLUMN": "memory", "CONVERT": "numbers", "UNARY": "arithmetic",
}  # fmt: skip
_ARRAY_CALLS = frozenset("argmax argmin zeros ones empty full zeros_like empty_like".split())


class Names:
    """Module-level names a generated file needs, handed out on first use."""

    def __init__(self) -> None:
        self.definitions: dict[str, str] = {}  # name -> right-hand side
        self.helpers: dict[int, str] = {}  # id of a helper -> its generated name
        self.counting_helpers: set[int] = set()  # those that take the counter too
        self.modules: set[str] = set()  # those that the definitions refer to
        self.worker: list[str] = []  # ["_k_w"] if functions take the worker's record
        self.rounding: list[str] = []  # the same if operations round as it says
        self.has_floats_and_integers = False  # so that one may be stored as the other

    def native(self, name: str) -> str:
        return self.of_module("arithmetic", name)

    def memory(self, name: str) -> str:
        return self.of_module("memory", name)

    def table(self, table: str, key: str) -> str:
        """The entry of a table of functions."""
        module = _MODULE_OF_TABLE[table]
        self.modules.add(module)
        alias = f"_k_{table.lower()}_{key}"
        self.definitions[alias] = f"native_{module}.{table}[{key!r}]"
        return alias

    def quarter(self, name: str) -> str:
        return self.of_module("quarter", name)

    def vectors(self, name: str) -> str:
        return self.of_module("vectors", name)

    def random(self, name: str) -> str:
        return self.of_module("random", name)

    def of_module(self, module: str, name: str) -> str:
        """A function of native/: the name it has in the kernel."""
        self.modules.add(module)
        alias = f"_k_{name}"
        self.definitions[alias] = f"native_{module}.{name}"
        return alias

    def number(self, value: bool | int | float) -> str:
        """Floats are float32 constants: tiles have no doubles."""
        if isinstance(value, bool | int):
            return repr(value)
        text = f"np.float32({value!r})" if math.isfinite(value) else f"np.float32('{value}')"
        for name, known in self.definitions.items():
            if known == text:
                return name
        name = f"_k_number_{len(self.definitions)}"
        self.definitions[name] = text
        return name

    def tuple_of(self, values: tuple[bool | int | float, ...]) -> str:
        """A tuple of one type, so that it can be indexed by a variable."""
        has_float = any(isinstance(v, float) for v in values)
        parts = [self.number(float(v) if has_float else v) for v in values]
        name = f"_k_tuple_{len(self.definitions)}"
        self.definitions[name] = f"({', '.join(parts)},)"
        return name


def call(name: str, *arguments: ast.expr | str) -> ast.Call:
    """The syntax tree of name(arguments…); text arguments are names."""
    values = [ast.Name(a, ast.Load()) if isinstance(a, str) else a for a in arguments]
    return ast.Call(ast.Name(name, ast.Load()), values, [])


class ExpressionLowering(ast.NodeTransformer):
    """Rewrites expressions of one function. `fields` is empty in helper functions."""

    def __init__(
        self,
        function: FunctionSource,
        fields: Mapping[str, FieldSpec],
        names: Names,
        kinds: KindTable | None,
    ) -> None:
        self.function, self.fields, self.names = function, fields, names
        self.kinds = kinds
        self.used_fields: set[str] = set()

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Rewrite a copy: the user's tree is used again for counting and for other kernels."""
        parts = {
            name: list(value) if isinstance(value, list) else value
            for name, value in ast.iter_fields(node)
        }
        return super().generic_visit(ast.copy_location(type(node)(**parts), node))

    # -- numbers and names

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, bool | int | float):
            raise self.function.error("text has no meaning on a tile", node, "use numbers")
        return ast.Name(self.names.number(node.value), ast.Load())

    def visit_Name(self, node: ast.Name) -> ast.expr:
        bound = self.function.bindings.get(node.id)
        return node if bound is None else self._bound(node, bound)

    def _bound(self, node: ast.expr, bound: object) -> ast.expr:
        if isinstance(bound, tuple):
            return ast.Name(self.names.tuple_of(bound), ast.Load())
        if isinstance(bound, bool | int | float):
            return ast.Name(self.names.number(bound), ast.Load())
        if isinstance(bound, Type):
            if bound.name in ("HALF", "QUARTER"):
                raise self.function.error(
                    f"local arrays of {bound.spelling} are not supported", node, "use float32"
                )
            return ast.parse(f"np.{bound.dtype.name}", mode="eval").body
        raise self.function.error(
            f"{ast.unparse(node)!r} can only be called", node, "call it with arguments"
        )

    # -- fields

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        name = dotted_name(node) or ""
        if not name.startswith("self."):
            return self._bound(node, self.function.bindings[name])
        field = self.use(node.attr)
        if field.kind in (FieldKind.SCALAR, FieldKind.STATE):
            return self._loaded(field, *self.place_of(field))
        if field.kind in (FieldKind.VECTOR, FieldKind.STATE_VECTOR):
            return ast.Name(f"_k_x_{field.name}", ast.Load())
        raise self.function.error(
            f"'self.{field.name}' is a {field.kind.value} and cannot be used as a whole", node,
            f"use self.{field.name}[i] or len(self.{field.name})",
        )  # fmt: skip

    def use(self, name: str) -> FieldSpec:
        self.used_fields.add(name)
        return self.fields[name]

    def place_of(self, field: FieldSpec) -> tuple[str, ast.expr]:
        """Pointer name and index of a number field."""
        if field.kind is FieldKind.STATE:
            return f"_k_c_{field.name}_value", ast.Name("_k_v", ast.Load())
        return f"_k_p_{field.type.name}", ast.Name(f"_k_at_{field.name}", ast.Load())

    def _loaded(self, field: FieldSpec, pointer: str, index: ast.expr) -> ast.expr:
        value = call(self.names.memory("load"), pointer, index)
        if field.type.requires_metadata:
            return call(self.names.quarter("decode_quarter"), value, f"_k_m_{field.name}")
        return value

    def stored(self, field: FieldSpec, pointer: str, index: ast.expr, value: ast.expr) -> ast.expr:
        if field.type.requires_metadata:
            encode = self.names.quarter("encode_quarter")
            value = call(encode, value, f"_k_m_{field.name}", *self.names.rounding)
        return call(self.names.memory("store"), pointer, index, value, *self.names.rounding)

    def element_text(self, place: str, value: ast.expr) -> str:
        """The text of a value about to be stored in a vector."""
        text = ast.unparse(ast.fix_missing_locations(value))
        if not self.names.rounding and not self.names.has_floats_and_integers:
            return text
        worker = self.names.rounding[0] if self.names.rounding else "None"
        return f"{self.names.memory('as_element')}({place}, {text}, {worker})"

    def list_field(self, node: ast.expr) -> FieldSpec | None:
        """The vector-of-edges field that `node` is, if it is one."""
        name = dotted_name(node) or ""
        field = self.fields.get(name[5:]) if name.startswith("self.") else None
        is_list = field and field.kind in (FieldKind.VECTOR_LIST, FieldKind.SCALAR_LIST)
        return self.use(field.name) if is_list else None  # pyright: ignore[reportOptionalMemberAccess]

    def list_item(self, field: FieldSpec, index: ast.expr) -> ast.expr:
        """Element `index` (already lowered) of a vector of edges."""
        if field.kind is FieldKind.SCALAR_LIST:
            return self._loaded(field, *self.list_place(field, index))
        position = ast.BinOp(ast.Name(f"_k_s_{field.name}", ast.Load()), ast.Add(), index)
        load = self.names.memory("load")
        offset = call(load, f"_k_c_{field.name}_offset", position)
        length = call(load, f"_k_c_{field.name}_length", position)
        return self.vector_at(field, f"_k_p_{field.type.name}", offset, length)

    def list_place(self, field: FieldSpec, index: ast.expr) -> tuple[str, ast.expr]:
        position = ast.BinOp(ast.Name(f"_k_s_{field.name}", ast.Load()), ast.Add(), index)
        at = call(self.names.memory("load"), f"_k_c_{field.name}_offset", position)
        return f"_k_p_{field.type.name}", at

    def vector_at(
        self, field: FieldSpec, pointer: str, offset: ast.expr, length: ast.expr
    ) -> ast.expr:
        if field.type.requires_metadata:
            make = self.names.quarter("quarter_vector")
            metadata = f"_k_m_{field.name}"
            return call(make, pointer, offset, length, metadata, *self.names.rounding)
        is_input = field.direction is Direction.INPUT
        make = self.names.memory("input_vector" if is_input else "vector")
        return call(make, pointer, offset, length)

    def list_index(self, field: FieldSpec, index: ast.expr) -> ast.expr:
        """A user's index into a list: negative ones count from the end."""
        if isinstance(index, ast.Slice):
            raise self.function.error(
                f"'self.{field.name}' cannot be sliced", index, "loop over its indices"
            )
        return call(self.names.memory("wrapped"), self.visit(index), f"_k_n_{field.name}")

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        field = self.list_field(node.value)
        if field is not None:
            return self.list_item(field, self.list_index(field, node.slice))
        return ast.Subscript(self.visit(node.value), self.visit(node.slice), ast.Load())

    # -- operators

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        name = self.names.native(BINARY[type(node.op)])
        return call(name, self.visit(node.left), self.visit(node.right), *self.names.rounding)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return ast.UnaryOp(ast.Not(), operand)
        return call(self.names.native(_UNARY[type(node.op)]), operand)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        values = [node.left, *node.comparators]
        parts = [
            call(self.names.native(_COMPARE[type(op)]), self.visit(a), self.visit(b))
            for op, a, b in zip(node.ops, values, values[1:], strict=False)
        ]
        return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), list(parts))

    # -- calls

    def visit_Call(self, node: ast.Call) -> ast.expr:
        target = self.function.bindings[dotted_name(node.func) or ""]
        if isinstance(target, Type):
            return self._conversion(node, target)
        if isinstance(target, FunctionSource):
            arguments = [self.visit(a) for a in node.args]
            counter = ["_k_count"] if id(target) in self.names.counting_helpers else []
            return call(self.names.helpers[id(target)], *arguments, *counter, *self.names.worker)
        assert isinstance(target, Known), target
        if target.where == "builtin":
            return self._builtin(node, target.name)
        return self._function(node, target)

    def _conversion(self, node: ast.Call, target: Type) -> ast.expr:
        if target.name in ("QUARTER", "QUARTER_METADATA"):
            raise self.function.error(
                f"{target.spelling}(…) needs a format and scale", node,
                "assign to a quarter field, which has them",
            )  # fmt: skip
        if len(node.args) != 1:
            raise self.function.error("a conversion takes one value", node, "write float32(x)")
        name = self.names.table("CONVERT", target.name)
        return call(name, self.visit(node.args[0]), *self.names.rounding)

    def _builtin(self, node: ast.Call, name: str) -> ast.expr:
        if name == "len":
            return self._len(node)
        arguments = [self.visit(a) for a in node.args]
        if name in ("int", "float", "bool") and len(arguments) == 1:
            key = {"int": "LONGLONG", "float": "FLOAT", "bool": "BOOL"}[name]
            return call(self.names.table("CONVERT", key), *arguments)
        if name in ("min", "max") and len(arguments) >= 2:
            native = self.names.native("minimum" if name == "min" else "maximum")
            value = arguments[0]
            for argument in arguments[1:]:
                value = call(native, value, argument)
            return value
        if name == "abs":
            return call(self.names.native("absolute"), *arguments)
        if name == "sum" and len(arguments) == 1:
            return call(self.names.vectors("reduce_sum"), *arguments, *self.names.rounding)
        if name == "pow" and len(arguments) == 2:
            return call(self.names.native("pow"), *arguments, *self.names.rounding)
        if name == "range":
            return call("range", *arguments)
        raise self.function.error(
            f"{ast.unparse(node)!r} is not supported here", node, "write a for loop"
        )

    def _len(self, node: ast.Call) -> ast.expr:
        field = self.list_field(node.args[0]) if node.args else None
        if field is not None:
            return ast.Name(f"_k_n_{field.name}", ast.Load())
        return call("len", *[self.visit(a) for a in node.args])

    def _function(self, node: ast.Call, target: Known) -> ast.expr:
        arguments = [self.visit(a) for a in node.args]
        if target.where == "random":
            return self._random(node, target.name, arguments)
        rounding = self.names.rounding
        name = _NUMPY_AS_MATH.get(target.name, target.name)
        if target.where == "numpy":
            if name in _REDUCTIONS:
                return call(self.names.vectors(f"reduce_{name}"), *arguments, *rounding)
            if name in _ARRAY_CALLS:
                keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
                function = ast.parse(f"np.{name}", mode="eval").body
                return ast.Call(function, arguments, keywords)
            name = {"power": "pow", "abs": "absolute", "fabs": "absolute"}.get(name, name)
            name = f"np_{name}" if name in _ROUNDINGS else name
        if name == "dot":
            return call(self.names.vectors("dot"), *arguments, *rounding)
        if name in ("minimum", "maximum", "absolute"):
            return call(self.names.native(name), *arguments)
        if name in _TWO_NUMBERS:
            return call(self.names.native(name), *arguments, *rounding)
        return call(self.names.table("UNARY", name), *arguments, *rounding)

    def _random(self, node: ast.Call, name: str, arguments: list[ast.expr]) -> ast.expr:
        n_wanted = RANDOM_ARGUMENTS.get(name, 0)
        if len(arguments) != n_wanted:
            raise self.function.error(
                f"{name} takes {n_wanted} arguments, got {len(arguments)}", node,
                f"write {name}({', '.join(['x', 'y'][:n_wanted])})",
            )  # fmt: skip
        return call(self.names.random(name), *arguments, "_k_w")
