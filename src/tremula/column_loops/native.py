"""Sweeps as native code: C of the same function, compiled once per machine.

Sweeps are loops over columns of integers and use few statements of Python, which C has, too: all
names in them are 64-bit integers, a column is a pointer and its sizes. Numba can do the same, and
does where there is no C compiler; but to load it takes a second. A compiler that fails is warned
of.
"""

import ast
import ctypes
import hashlib
import platform
import struct
import tempfile
import textwrap
import threading
import warnings
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tremula.base.errors import GraphProgramCompilationError
from tremula.base.processes import fork_safe
from tremula.base.source import lines_of_function
from tremula.base.storage.cache_dir import cache_dir
from tremula.base.storage.checked_file import is_usable, write_checked
from tremula.codelets.cpp.toolchain import compilation_error, find_compiler

Function = Callable[..., Any]

_FLAGS = ("-O2", "-fwrapv", "-fno-strict-aliasing", "-fPIC", "-shared", "-w")
_TYPES = {
    "i8": "long long", "u8": "unsigned long long", "i4": "int", "i2": "short", "b1": "unsigned char"
}  # fmt: skip
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|"}
_SIGNS = {ast.USub: "-", ast.Invert: "~", ast.Not: "!"}
_COMPARISONS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="
}  # fmt: skip
# Python's division rounds down, that of C towards zero.
_HEAD = """static long long floor_div(long long a, long long b) {
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
"""
_HEAD_BYTES = object.__basicsize__  # of every object; in an array its address follows
# The beginnings of PyArray_Descr and PyArrayObject_fields, which NumPy promises to keep.
_ARRAYS = f"""struct type {{
    char head[{_HEAD_BYTES}]; void *scalar; char letters[4]; int number;
}};
struct array {{
    char head[{_HEAD_BYTES}]; void *data; int n_dims; long *shape, *strides; void *base;
    struct type *type; int flags;
}};
"""


class LoopColumn(NamedTuple):
    """The type of a column's elements, as NumPy abbreviates it, and its rank, 1 or 2; 0: an int."""

    type: str
    rank: int


class NativeSweep:
    """A sweep as native code, compiled again for columns of other types."""

    def __init__(self, function: Function, with_numba: Callable[[], Function]):
        self.function, self._with_numba = function, with_numba
        self._made: dict[tuple, Function] = {}  # by the types of arguments, in short
        self._on_arrays: Callable[[tuple], Any] | None = None  # of the types of the last call

    def __call__(self, *columns: np.ndarray | int) -> object:
        on_arrays = self._on_arrays  # another thread may call with other types meanwhile
        if on_arrays is not None and (results := on_arrays(columns)) is not _OTHER_TYPES:
            return results
        key = tuple([None if isinstance(c, int) else (c.dtype.num, c.ndim) for c in columns])
        run = self._made.get(key)
        if run is None:
            kinds = tuple(map(kind_of, columns))
            run = self._made[key] = compiled(self.function, kinds) or self._with_numba()
        self._on_arrays = run.on_arrays if isinstance(run, _NativeLoop) else None
        return run(*columns)


_NUMBER = LoopColumn("i8", 0)


def kind_of(column: np.ndarray | int) -> LoopColumn:
    """What a sweep is compiled for: a column, or a plain number."""
    return _NUMBER if isinstance(column, int) else LoopColumn(column.dtype.str[1:], column.ndim)


def compiled(function: Function, columns: Sequence[LoopColumn]) -> Function | None:
    """A sweep compiled by the C compiler; None if there is none, nor its work of an earlier run."""
    if any(column.type not in _TYPES for column in columns):
        return None
    translated = _Translator(function, columns)
    try:
        path = _library(translated.text())
        if path is None:
            return None
        library = ctypes.CDLL(str(path))
    except (GraphProgramCompilationError, OSError) as error:
        name = getattr(function, "__name__", "a sweep")
        warnings.warn(f"{name} is compiled by Numba, which is slower: {error}", stacklevel=3)
        return None
    return _NativeLoop(library, translated)


_OTHER_TYPES = object()  # instead of results: the columns are not what the loop was compiled for


class _NativeLoop:
    """Machine code of a sweep, for columns of some types."""

    def __init__(self, library: ctypes.CDLL, translated: "_Translator"):
        self.translated, kinds = translated, translated.columns.values()
        of_column = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong]
        types = (of_column if kind.rank else [ctypes.c_longlong] for kind in kinds)
        self._sweep, self._sweep_arrays = library.sweep, library.sweep_arrays
        self._sweep.argtypes = [*chain.from_iterable(types), ctypes.c_void_p]
        self._sweep.restype = None
        self._sweep_arrays.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        self._classes = tuple(np.ndarray if kind.rank else int for kind in kinds)
        self._pack = struct.Struct(f"{len(kinds)}q").pack
        self._results_type = ctypes.c_longlong * translated.n_results

    def __call__(self, *columns: np.ndarray | int) -> tuple | None:
        """Results for any columns of the types."""
        translated, alive, arguments = self.translated, [], []
        for name, column in zip(translated.columns, columns, strict=True):
            if isinstance(column, int):
                arguments.append(column)
                continue
            is_whole = name not in translated.written or column.flags.c_contiguous
            assert is_whole, "it is written in place"
            column = np.ascontiguousarray(column)
            alive.append(column)
            arguments += (column.ctypes.data, column.shape[0], column.shape[-1])
        results = self._results_type()
        self._sweep(*arguments, results)
        return tuple(results) or None

    def on_arrays(self, columns: tuple) -> object:
        """Results for contiguous columns, `_OTHER_TYPES` for others.

        The machine code reads types and addresses in the arrays: most calls are on few elements,
        and Python would take ten times as long for it.
        """
        if tuple(map(type, columns)) != self._classes or not _CAN_READ_ARRAYS:
            return _OTHER_TYPES
        words = [column if type(column) is int else id(column) for column in columns]
        results = self._results_type()
        if self._sweep_arrays(self._pack(*words), results):
            return _OTHER_TYPES
        return tuple(results) or None


def _can_read_arrays() -> bool:
    """Whether arrays of this Python and this NumPy are as they are documented to be."""
    column = np.arange(6, dtype=np.int32).reshape(2, 3)

    def word(kind: type, address: int, n_bytes: int) -> int:
        return kind.from_address(address + n_bytes).value

    pointer, head = ctypes.c_size_t, _HEAD_BYTES
    at, type_at = id(column), word(pointer, id(column), head + 40)
    return (
        platform.python_implementation() == "CPython"
        and ctypes.sizeof(ctypes.c_long) == ctypes.sizeof(pointer) == 8
        and word(pointer, at, head) == column.ctypes.data
        and word(ctypes.c_int, at, head + 8) == 2
        and word(ctypes.c_long, word(pointer, at, head + 16), 8) == 3
        and type_at == id(column.dtype)
        and word(ctypes.c_int, type_at, head + 12) == column.dtype.num
        and word(ctypes.c_int, at, head + 48) & 1 == 1
    )


_CAN_READ_ARRAYS = _can_read_arrays()


def _library(text: str) -> Path | None:
    """The file with a sweep's machine code; None if it has to be made and there is no compiler."""
    key = "\n".join((text, *_FLAGS, platform.system(), platform.machine()))
    path = cache_dir() / "loops" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.so"
    if is_usable(path):
        return path
    try:
        compiler = find_compiler()
    except GraphProgramCompilationError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "sweep.so")
        done = compiler.run(["-x", "c", *_FLAGS, "-o", str(built), "-"], text)
        if done.returncode != 0:
            raise compilation_error(done.stderr, "the C of a sweep")
        write_checked(path, built.read_bytes())
    return path


# -- Python to C -----------------------------------------------------------------------------------


# In Python 3.11, threads that parse at once corrupt each other's recursion depth: a SystemError.
_PARSING = fork_safe(threading.Lock())


class _Translator:
    """The text of one function. What sweeps do not use so far is an error."""

    def __init__(self, function: Function, kinds: Sequence[LoopColumn]):
        text = textwrap.dedent("".join(lines_of_function(function)[0]))
        with _PARSING:
            tree = ast.parse(text).body[0]
        assert isinstance(tree, ast.FunctionDef), "the source of a function"
        self.tree = tree
        self.columns = dict(zip((a.arg for a in tree.args.args), kinds, strict=True))
        nodes = list(ast.walk(tree))
        stored = [n for n in nodes if isinstance(getattr(n, "ctx", None), ast.Store)]
        places = (n.value for n in stored if isinstance(n, ast.Subscript))
        self.written = {column.id for column in places if isinstance(column, ast.Name)}
        self.locals = sorted({n.id for n in stored if isinstance(n, ast.Name)})
        returned = (n.value for n in nodes if isinstance(n, ast.Return))
        self.n_results = max((len(v.elts) for v in returned if isinstance(v, ast.Tuple)), default=0)
        self._n_temporaries = 0

    def text(self) -> str:
        parameters = "".join(
            f"{_TYPES[kind.type]} *{name}_, long long n_{name}, long long m_{name}, "
            if kind.rank
            else f"long long {name}_, "
            for name, kind in self.columns.items()
        )
        names = "".join(f"    long long {name}_ = 0;\n" for name in self.locals)
        body = "".join(f"    {line}\n" for line in self._block(self.tree.body))
        sweep = f"void sweep({parameters}long long *results_) {{\n{names}{body}}}\n"
        return f"{_HEAD}{sweep}{_ARRAYS}{self._on_arrays()}"

    def _on_arrays(self) -> str:
        """A function that reads the columns in NumPy's arrays; 1 if one is of another type."""
        lines, arguments = [], []
        for i, kind in enumerate(self.columns.values()):
            if not kind.rank:
                arguments.append(f"words[{i}]")
                continue
            number = np.dtype(kind.type).num
            is_other = f"a{i}->n_dims != {kind.rank} || a{i}->type->number != {number}"
            lines.append(f"const struct array *a{i} = (const struct array *)words[{i}];")
            lines.append(f"if ({is_other} || !(a{i}->flags & 1)) return 1;")
            arguments += (f"a{i}->data", f"a{i}->shape[0]", f"a{i}->shape[{kind.rank - 1}]")
        body = "".join(f"    {line}\n" for line in lines)
        call = f"    sweep({', '.join(arguments)}, results_);\n    return 0;\n"
        return f"int sweep_arrays(const long long *words, long long *results_) {{\n{body}{call}}}\n"

    def _block(self, statements: Sequence[ast.stmt]) -> list[str]:
        return [line for statement in statements for line in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> list[str]:  # noqa: C901, PLR0911 - a case each
        match node:
            case ast.Expr(ast.Constant(str())):
                return []
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                return self._assign_together(targets, values)
            case ast.Assign([target], value):
                return [f"{self._value(target)} = {self._value(value)};"]
            case ast.AugAssign(target, op, value):
                return [f"{self._value(target)} {_OPERATORS[type(op)]}= {self._value(value)};"]
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), limits), body):
                return self._for(name, limits, body)
            case ast.While(test, body):
                return [f"while ({self._value(test)}) {{", *self._block(body), "}"]
            case ast.If(test, body, otherwise):
                begin = [f"if ({self._value(test)}) {{", *self._block(body)]
                return [*begin, "} else {", *self._block(otherwise), "}"]
            case ast.Continue():
                return ["continue;"]
            case ast.Break():
                return ["break;"]
            case ast.Return(ast.Tuple(values)):
                stores = [f"results_[{i}] = {self._value(v)};" for i, v in enumerate(values)]
                return [*stores, "return;"]
        raise _unsupported(node)

    def _assign_together(self, targets: list[ast.expr], values: list[ast.expr]) -> list[str]:
        """All values are computed before the first is assigned."""
        names = [self._temporary() for _ in values]
        pairs = zip(names, values, strict=True)
        lines = [f"long long {name} = {self._value(v)};" for name, v in pairs]
        pairs = zip(targets, names, strict=True)
        return ["{", *lines, *(f"{self._value(t)} = {name};" for t, name in pairs), "}"]

    def _for(self, name: str, limits: list[ast.expr], body: list[ast.stmt]) -> list[str]:
        """The limits are computed once, and the name keeps its last value."""
        bounds = [self._value(limit) for limit in limits]
        begin, end, step = [*(["0LL"] if len(bounds) == 1 else []), *bounds, "1LL"][:3]
        at, last = self._temporary(), self._temporary()
        is_down = step.startswith("(-")
        test = f"{at} {'>' if is_down else '<'} {last}"
        head = f"for (long long {at} = {begin}, {last} = {end}; {test}; {at} += {step}) {{"
        return [head, f"{name}_ = {at};", *self._block(body), "}"]

    def _temporary(self) -> str:
        self._n_temporaries += 1
        return f"t{self._n_temporaries}"

    def _value(self, node: ast.expr) -> str:  # noqa: C901, PLR0911 - a case each
        match node:
            case ast.Constant(int() as number):
                return f"{int(number)}LL"
            case ast.Name(name):
                return f"{name}_"
            case ast.BinOp(left, ast.FloorDiv(), right):
                return f"floor_div({self._value(left)}, {self._value(right)})"
            case ast.BinOp(left, op, right):
                return f"({self._value(left)} {_OPERATORS[type(op)]} {self._value(right)})"
            case ast.UnaryOp(op, operand):
                return f"({_SIGNS[type(op)]}{self._value(operand)})"
            case ast.BoolOp(op, values):
                joined = " && " if isinstance(op, ast.And) else " || "
                return f"({joined.join(map(self._value, values))})"
            case ast.Compare(left, [op], [right]):
                return f"({self._value(left)} {_COMPARISONS[type(op)]} {self._value(right)})"
            case ast.Call(ast.Name("min" | "max" as name), [left, right]):
                one, other = self._value(left), self._value(right)
                return f"({one} {'<' if name == 'min' else '>'} {other} ? {one} : {other})"
            case ast.Call(ast.Name("len"), [ast.Name(name)]):
                return f"n_{name}"
            case ast.Subscript(ast.Attribute(ast.Name(name), "shape"), ast.Constant(1)):
                return f"m_{name}"
            case ast.Subscript(ast.Name(name), ast.Tuple([row, place])):
                return f"{name}_[{self._value(row)} * m_{name} + {self._value(place)}]"
            case ast.Subscript(ast.Name(name), place) if self.columns[name].rank == 1:
                return f"{name}_[{self._value(place)}]"
        raise _unsupported(node)


def _unsupported(node: ast.AST) -> NotImplementedError:
    return NotImplementedError(f"a sweep cannot contain {ast.unparse(node)!r} so far")
