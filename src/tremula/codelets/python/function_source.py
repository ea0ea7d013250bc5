"""A function of a codelet as data: its text, and what each outside name in it means.

Every outside name (a number, a type, a known function, another function) is resolved here, once. So
a function can be stored in a file, read back and compiled again without running anything in the
file.
"""

import ast
import builtins
import inspect
import math
import numbers
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import CodeType, FunctionType, ModuleType

import numpy as np

from tremula.base.errors import GraphObjectCreationError, suggest
from tremula.base.source import Source, lines_of_function, source_at
from tremula.base.types import Type, as_type
from tremula.codelets.python import machine, random
from tremula.codelets.python.nodes import walk
from tremula.codelets.spec import N_WORKERS

BUILTINS = frozenset(
    "range len min max abs int float bool round enumerate zip reversed pow sum".split()
)
MATH = frozenset(
    "exp expm1 log log1p log2 log10 sqrt tanh sin cos tan asin acos atan sinh cosh fabs erf "
    "floor ceil trunc isnan isinf isfinite atan2 hypot fmod copysign pow degrees radians".split()
)
NUMPY = frozenset(
    "exp expm1 log log1p log2 log10 sqrt tanh sin cos tan arcsin arccos arctan arctan2 sinh cosh "
    "fabs floor ceil trunc rint isnan isinf isfinite hypot fmod copysign abs absolute power "
    "minimum maximum dot sum max min argmax argmin prod zeros ones empty full degrees radians "
    "zeros_like empty_like".split()
)
Constant = bool | int | float | tuple["bool | int | float", ...]


@dataclass(frozen=True, slots=True)
class Known:
    """A function that tiles have: `where` is "builtin", "math", "numpy" or "random"."""

    where: str
    name: str


@dataclass(frozen=True)
class FunctionSource:
    """A function: its text (starting at column 0), where it is written, its outside names."""

    name: str
    text: str
    source: Source  # of its first line
    bindings: Mapping[str, "Binding"] = field(default_factory=dict)

    def tree(self) -> ast.FunctionDef:
        """A fresh syntax tree, with line numbers counted from 1 at the first line of the text."""
        result = ast.parse(self.text).body
        if len(result) != 1 or not isinstance(result[0], ast.FunctionDef):
            raise self.error("a plain function was expected", None, "write it with def")
        result[0].decorator_list = []
        return result[0]

    @property
    def n_workers(self) -> int:
        """The value of `self.n_workers`; see `for_workers`."""
        result = self.bindings.get(_N_WORKERS_NAME, N_WORKERS)
        assert isinstance(result, int), result
        return result

    def is_n_workers(self, node: ast.AST) -> bool:
        return dotted_name(node) == _N_WORKERS_NAME

    def line_of(self, node: ast.AST | None) -> Source:
        offset = getattr(node, "lineno", 1) - 1
        return source_at(self.source.file, self.source.line + offset)

    def error(self, what: str, node: ast.AST | None, hint: str) -> GraphObjectCreationError:
        return GraphObjectCreationError(
            f"{self.name}: {what}.", source=self.line_of(node), hint=hint
        )


Binding = Constant | Type | Known | FunctionSource
_N_WORKERS_NAME = "self.n_workers"


def for_workers(compute: FunctionSource, n_workers: int) -> FunctionSource:
    """`compute` for a chip with this many workers: `self.n_workers` becomes that constant."""
    if n_workers == compute.n_workers:
        return compute
    return replace(compute, bindings={**compute.bindings, _N_WORKERS_NAME: n_workers})


def dotted_name(node: ast.AST) -> str | None:
    """`np.exp` of an attribute chain on a name; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


def local_names(tree: ast.FunctionDef) -> set[str]:
    """Parameters and every name the function assigns."""
    names = {a.arg for a in tree.args.args}
    names.update(
        n.id for n in walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )
    return names


def outside_names(tree: ast.FunctionDef) -> dict[str, ast.AST]:
    """Every dotted name that does not start with a local one, and a node where it occurs."""
    local = local_names(tree)
    result: dict[str, ast.AST] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Attribute | ast.Name):
            name = dotted_name(node)
            if name is not None:
                if name.split(".")[0] not in local:
                    result.setdefault(name, node)
                return
        for child in ast.iter_child_nodes(node):
            visit(child)

    for statement in tree.body:
        visit(statement)
    return result


def read_function(
    function: Callable[..., object], label: str, seen: tuple[str, ...] = ()
) -> FunctionSource:
    """A live Python function as data, helper functions it calls included."""
    text, first, names = _read_once(function, label)
    bare = FunctionSource(label, text, source_at(function.__code__.co_filename, first))
    if function.__name__ in seen:
        raise bare.error("it calls itself", None, "tiles have no recursion here: use a loop")
    scope = _scope_of(function)
    bindings = {
        name: _resolve(name, node, scope, bare, (*seen, function.__name__))
        for name, node in names.items()
    }
    return FunctionSource(bare.name, bare.text, bare.source, bindings)


# Text, first line and outside names of what was read, by file and code: factories of codelets make
# many functions of one code, with other values in its closure.
_read: dict[tuple[str, CodeType], tuple[str, int, dict[str, ast.AST]]] = {}


def _read_once(function: Callable[..., object], label: str) -> tuple[str, int, dict[str, ast.AST]]:
    """The dedented text of a function, its first line, and the outside names it uses."""
    plain: FunctionType = inspect.unwrap(function)  # pyright: ignore[reportAssignmentType]
    key = (plain.__code__.co_filename, plain.__code__)
    if key not in _read:
        where = source_at(function.__code__.co_filename, function.__code__.co_firstlineno)
        try:
            lines, first = lines_of_function(function)
        except (OSError, TypeError):
            raise GraphObjectCreationError(
                f"{label}: its source text cannot be read, and codelets compile from source.",
                source=where,
                hint="define it in a file rather than at an interactive prompt or by exec",
            ) from None
        bare = FunctionSource(label, textwrap.dedent("".join(lines)), source_at(where.file, first))
        try:
            tree = bare.tree()
        except SyntaxError:
            raise bare.error("it is not a plain function", None, "write it with def") from None
        check_allowed(bare, tree)
        _read[key] = bare.text, first, outside_names(tree)
    return _read[key]


def _scope_of(function: Callable[..., object]) -> dict[str, object]:
    scope = {**vars(builtins), **function.__globals__}
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            scope.pop(name, None)
    return scope


def _resolve(
    name: str, node: ast.AST, scope: dict[str, object], function: FunctionSource,
    seen: tuple[str, ...],
) -> Binding:  # fmt: skip
    first, *rest = name.split(".")
    if first not in scope:
        known = [n for n in scope if n.isidentifier() and not hasattr(builtins, n)]
        raise function.error(f"unknown name {first!r}", node, suggest(first, known))
    value = scope[first]
    for attribute in rest:
        if not isinstance(value, ModuleType) or not hasattr(value, attribute):
            raise function.error(
                f"{name!r} has no meaning on a tile", node, "use a number, type or function"
            )
        value = getattr(value, attribute)
    return _meaning(name, value, node, function, seen)


def _meaning(
    name: str, value: object, node: ast.AST, function: FunctionSource, seen: tuple[str, ...]
) -> Binding:
    constant = as_constant(value)
    if constant is not None:
        return constant
    if isinstance(value, Type):
        return value
    known = _known_function(value)
    if known is not None:
        return known
    if isinstance(value, type) and issubclass(value, np.generic | bool):
        if value in (np.float64, np.longdouble):
            raise function.error(
                f"{name!r} is a 64-bit float, which tiles do not have", node, "use float32"
            )
        return as_type(value)
    py_function = getattr(value, "py_func", value)  # a Numba function keeps its Python one
    if inspect.isfunction(py_function):
        return read_function(py_function, py_function.__name__, seen)
    raise function.error(
        f"{name!r} is a {type(value).__name__}, which a codelet cannot use",
        node,
        "use numbers, tuples of numbers, types, functions of math or numpy, or plain functions; "
        "give data to a vertex through its fields",
    )


def as_constant(value: object) -> Constant | None:
    """A number, bool or tuple of numbers as plain Python; None if it is neither."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, tuple) and value:
        items = tuple(as_constant(v) for v in value)
        if all(isinstance(v, bool | int | float) for v in items):
            return items  # pyright: ignore[reportReturnType]
    return None


def _known_function(value: object) -> Known | None:
    for where, module, names in (
        ("builtin", builtins, BUILTINS), ("math", math, MATH), ("numpy", np, NUMPY),
        ("random", random, random.FUNCTIONS),
    ):  # fmt: skip
        name = getattr(value, "__name__", "")
        if name in names and getattr(module, name, None) is value:
            return Known(where, name)
    return None


@cache
def _matrix_texts() -> dict[str, tuple[str, str]]:
    """Of each function of machine.py its text, and the module of its native twin."""
    return {
        f.__name__: (read_function(f, f.__name__).text, module)
        for f, module in machine.FUNCTIONS.items()
    }


def native_module(function: FunctionSource) -> str | None:
    """The module of native/ with its twin, if it is a function of machine.py; its text decides."""
    text, module = _matrix_texts().get(function.name, ("", ""))
    return module if text == function.text else None


# -- The statements and expressions of Python that a codelet may contain at all --------------------


_STATEMENTS = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Return, ast.Expr,
    ast.Pass, ast.Break, ast.Continue,
)  # fmt: skip
_EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Constant, ast.Name,
    ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple,
)  # fmt: skip
_HINTS = {
    "Try": "tiles have no exceptions: test with if",
    "Raise": "tiles have no exceptions: return False from compute, and test the step's flag",
    "Assert": "tiles have no exceptions: return False from compute, and test the step's flag",
    "With": "write the statements without with",
    "ListComp": "write a for loop",
    "GeneratorExp": "write a for loop",
    "Lambda": "define a function outside the class and call it",
    "FunctionDef": "define the function outside the class and call it",
    "ClassDef": "define the class outside compute",
    "Import": "import at the top of the file",
    "ImportFrom": "import at the top of the file",
    "Yield": "write results to an Output field",
    "JoinedStr": "tiles have no text",
    "Is": "compare with ==",
}
_WORDS = {
    "Try": "'try'", "TryStar": "'try'", "With": "'with'", "Yield": "'yield'",
    "YieldFrom": "'yield'", "Lambda": "'lambda'", "Raise": "'raise'", "Assert": "'assert'",
    "ClassDef": "a class", "FunctionDef": "a nested function", "Import": "'import'",
    "ImportFrom": "'import'", "Global": "'global'", "Nonlocal": "'nonlocal'",
    "Delete": "'del'", "ListComp": "a comprehension", "SetComp": "a comprehension",
    "DictComp": "a comprehension", "GeneratorExp": "a comprehension", "List": "a list",
    "Dict": "a dict", "Set": "a set", "JoinedStr": "an f-string", "Await": "'await'",
    "AsyncFunctionDef": "'async'", "AsyncFor": "'async'", "AsyncWith": "'async'",
    "Match": "'match'", "NamedExpr": "':='", "Starred": "'*' unpacking",
}  # fmt: skip


def check_allowed(function: FunctionSource, tree: ast.FunctionDef) -> None:
    """Refuse the first statement or expression that means nothing on a tile."""
    for statement in tree.body:
        for node in walk(statement):
            is_strange = (isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS)) or (
                isinstance(node, ast.expr) and not isinstance(node, _EXPRESSIONS)
            )
            if is_strange:
                kind = type(node).__name__
                hint = _HINTS.get(kind, "use arithmetic, if, for, while, and plain functions")
                what = f"a codelet cannot contain {_WORDS.get(kind, kind)}"
                raise function.error(what, node, hint)
