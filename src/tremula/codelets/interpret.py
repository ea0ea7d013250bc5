"""Run one vertex in plain Python, for debugging: breakpoints, print, and checked indices work.

`run_in_python` is for users: it takes a class and the values of its fields. `interpret` takes a
row of a vertex table, and is what tests compare kernels with.

The original `compute` runs on views of the arena. Inputs cannot be written, indices are checked,
and numbers behave as on a tile: integers are Python's, floats are float32, halves round after each
operation. A codelet read from a file runs from its stored text, which `subset.py` has checked.
"""

import ast
import builtins
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import CellType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tremula.base.errors import GraphConnectionError, StrictModeError
from tremula.base.floats import (
    QuarterFormat,
    float32_to_quarter,
    pack_metadata,
    quarter_to_float32,
    unpack_metadata,
)
from tremula.base.types import Type
from tremula.codelets.columns import columns_of
from tremula.codelets.python import random
from tremula.codelets.python.function_source import MATH, FunctionSource, Known
from tremula.codelets.python_codelet import PythonCodelet, codelet_of
from tremula.codelets.spec import N_WORKERS, Direction, FieldKind, FieldSpec, VertexBase


class Half(np.float16):
    """A half that rounds with halves and integers, and becomes a float32 beside a float."""

    def _with(self, other: object, operation: Callable[[Any, Any], Any]) -> object:
        if isinstance(other, float) or type(other) is np.float32:
            return np.float32(operation(np.float32(self), np.float32(other)))
        with np.errstate(all="ignore"):
            return Half(operation(np.float16(self), np.float16(other)))  # pyright: ignore[reportArgumentType]

    def __neg__(self) -> "Half":
        return Half(-np.float16(self))

    def __abs__(self) -> "Half":
        return Half(abs(np.float16(self)))

    def __float__(self) -> float:
        return float(np.float16(self))


def _install(name: str, operation: Callable[[Any, Any], Any]) -> None:
    """Give Half an operator and its reflection."""
    setattr(Half, f"__{name}__", lambda a, b: a._with(b, operation))
    setattr(Half, f"__r{name}__", lambda a, b: a._with(b, lambda x, y: operation(y, x)))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _install(_name, getattr(operator, _name))


def as_number(value: object) -> object:
    """A NumPy scalar as compute sees it."""
    if type(value) is np.float16:
        return Half(value)
    if isinstance(value, np.bool_):
        return bool(value)
    return int(value) if isinstance(value, np.integer) else value


class FieldVector(np.ndarray):
    """A view of a field whose elements are the machine's numbers."""

    def __getitem__(self, index: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        return as_number(super().__getitem__(index))  # pyright: ignore[reportCallIssue, reportArgumentType]

    def __setitem__(self, index: object, value: object) -> None:
        super().__setitem__(index, converted(value, self.dtype))  # pyright: ignore[reportCallIssue, reportArgumentType]

    def __iter__(self) -> Iterator[object]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (self[i] for i in range(len(self)))


class QuarterVector:
    """A view of 8-bit floats: reads are floats, writes round to nearest."""

    def __init__(self, codes: np.ndarray, metadata: int) -> None:
        self.codes, (self.format, self.scale) = codes, unpack_metadata(metadata)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> np.float32:
        return np.float32(quarter_to_float32(self.codes[index], self.format, self.scale))

    def __setitem__(self, index: int, value: object) -> None:
        self.codes[index] = float32_to_quarter(np.float32(value), self.format, self.scale)  # pyright: ignore[reportArgumentType]

    def __iter__(self) -> Iterator[object]:
        return (self[i] for i in range(len(self)))


def converted(value: object, dtype: np.dtype) -> np.ndarray:
    """A value stored as a kernel stores it: integers wrap, floats lose their fraction.

    A float that is out of an integer's range becomes the nearest there is, NaN becomes 0.
    """
    if isinstance(value, int) and not isinstance(value, bool) and dtype.kind in "iu":
        value = np.int64((value + 2**63) % 2**64 - 2**63)
    values = np.asarray(value)
    if values.dtype.kind == "f" and dtype.kind in "iu":
        return _as_integers(values.astype(np.float64), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(dtype)


def _as_integers(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values out of range skip NumPy's conversion, which depends on the processor there."""
    limits = np.iinfo(dtype)
    is_below, is_above = values <= float(limits.min), values >= float(limits.max)
    inside = np.where(is_below | is_above | np.isnan(values), 0, values).astype(dtype)
    return np.where(is_below, limits.min, np.where(is_above, limits.max, inside)).astype(dtype)


class VertexProxy:
    """`self` of one vertex: attributes are its fields."""

    _views: dict[str, Any]
    _codelet: PythonCodelet
    n_workers: int

    def __init__(
        self, codelet: PythonCodelet, arena: np.ndarray, columns: tuple[np.ndarray, ...], row: int,
        n_workers: int = N_WORKERS,
    ) -> None:  # fmt: skip
        values = {f.name: {} for f in codelet.spec.fields}
        for column in columns_of(codelet.spec.fields):
            values[column.field.name][column.role] = columns[column.index]
        state = {
            f.name: _view(f, arena, values[f.name], row) for f in codelet.spec.fields
        }  # fmt: skip
        object.__setattr__(self, "_views", state)
        object.__setattr__(self, "_codelet", codelet)
        object.__setattr__(self, "n_workers", n_workers)

    def __getattr__(self, name: str) -> object:
        view = self._views[name]
        is_number = self._codelet.spec.field(name).kind in (FieldKind.SCALAR, FieldKind.STATE)
        return view[0] if is_number else view

    def __setattr__(self, name: str, value: object) -> None:
        field = self._codelet.spec.field(name)
        if field.direction is Direction.INPUT:
            raise StrictModeError(
                f"codelet {self._codelet.spec.name!r} writes {name!r}, which is an Input.",
                source=self._codelet.spec.source,
                hint=f"declare {name} as Output or InOut",
            )
        self._views[name][0] = value


def _view(field: FieldSpec, arena: np.ndarray, values: dict[str, np.ndarray], row: int) -> object:
    if field.kind is FieldKind.STATE:
        return values["value"][row : row + 1].view(FieldVector)
    if field.kind is FieldKind.SCALAR:
        return _edge(field, arena, values, row, values["offset"][row], 1)
    if field.kind is FieldKind.VECTOR:
        return _edge(field, arena, values, row, values["offset"][row], values["length"][row])
    begin, end = values["start"][row], values["start"][row + 1]
    if field.kind is FieldKind.STATE_VECTOR:
        return values["value"][begin:end].view(FieldVector)
    if field.kind is FieldKind.VECTOR_LIST:
        places = zip(values["offset"][begin:end], values["length"][begin:end], strict=True)
        return [_edge(field, arena, values, row, at, n) for at, n in places]
    edges = [_edge(field, arena, values, row, at, 1) for at in values["offset"][begin:end]]
    return ScalarList(edges)


class ScalarList:
    """A vector of one-element edges."""

    def __init__(self, edges: list) -> None:
        self.edges = edges

    def __len__(self) -> int:
        return len(self.edges)

    def __getitem__(self, index: int) -> object:
        return self.edges[index][0]

    def __setitem__(self, index: int, value: object) -> None:
        self.edges[index][0] = value


def _edge(
    field: FieldSpec, arena: np.ndarray, values: dict, row: int, offset: int, length: int
) -> object:
    size = field.type.n_bytes
    begin = int(offset) * size
    view = arena[begin : begin + int(length) * size].view(field.type.dtype)
    if field.direction is Direction.INPUT:
        view = view[:]
        view.flags.writeable = False
    if field.type.requires_metadata:
        return QuarterVector(view, int(arena[values["metadata"][row]]))
    return view.view(FieldVector)


def interpret(
    codelet: PythonCodelet, arena: np.ndarray, columns: tuple[np.ndarray, ...], row: int,
    n_workers: int = N_WORKERS,
) -> bool:  # fmt: skip
    """Run `compute` of one row of a vertex table in plain Python; True unless it returned false."""
    proxy = VertexProxy(codelet, arena, columns, row, n_workers)
    function = _machine_function(codelet)
    is_multi = codelet.spec.base is VertexBase.MULTI_VERTEX
    results = []
    for worker in range(n_workers - 1, -1, -1) if is_multi else (0,):
        with _worker_of(codelet, arena, columns, row, worker):
            results.append(_is_true(function(proxy, worker) if is_multi else function(proxy)))
    return all(results)


def _worker_of(
    codelet: PythonCodelet, arena: np.ndarray, columns: tuple[np.ndarray, ...], row: int,
    worker: int,
) -> AbstractContextManager[None]:  # fmt: skip
    """Pass the record of the worker that runs a row to python/random.py."""
    if not codelet.spec.draws_random:
        return nullcontext()
    at = int(columns[-1][row]) + random.WORKER_WORDS * worker
    return random.worker_running(arena.view(np.uint64)[at : at + random.WORKER_WORDS])


def _is_true(result: object) -> bool:
    return result is None or bool(result)


def _machine_function(codelet: PythonCodelet) -> Callable:
    if codelet.vertex_class is not None:
        return _with_machine_numbers(codelet.vertex_class.compute)
    return _from_text(codelet.compute)


def _machine_float(value: object) -> np.float32:
    return np.float32(value)  # pyright: ignore[reportArgumentType]


def _with_machine_numbers(function: Callable) -> FunctionType:
    """Codelet code with the machine's types, float and math; breakpoints still hit."""
    scope = dict(function.__globals__)
    for name in function.__code__.co_names:
        if name in scope:
            scope[name] = _machine_value(scope[name])
    scope.setdefault("float", _machine_float)
    cells = tuple(CellType(_machine_value(c.cell_contents)) for c in function.__closure__ or ())
    return FunctionType(function.__code__, scope, function.__name__, None, cells)


def _machine_value(value: object) -> object:
    if isinstance(value, Type):
        return _Conversion(value)
    if isinstance(value, ModuleType) and value is math:
        return _MATH
    function = getattr(value, "py_func", value)  # a Numba function keeps its Python one
    if isinstance(function, FunctionType) and function.__module__ != random.__name__:
        return _with_machine_numbers(function)
    return value


@cache
class _Conversion:
    """A type that converts when called; one object per type, so that `T is half` holds."""

    def __init__(self, element_type: Type) -> None:
        self.type = element_type

    def __call__(self, value: object) -> object:
        return as_number(converted(value, self.type.dtype)[()])


def _machine_math(name: str) -> Callable:
    function = getattr(math, name)

    def call(*values: float) -> object:
        result = function(*map(float, values))
        if not isinstance(result, float):
            return result
        is_half = all(isinstance(v, Half) for v in values)
        return Half(np.float32(result)) if is_half else np.float32(result)

    return call


_MATH = SimpleNamespace(
    **{name: _machine_math(name) for name in MATH}, pi=math.pi, e=math.e, inf=math.inf,
    nan=math.nan, tau=math.tau,
)  # fmt: skip


def _from_text(function: FunctionSource) -> Callable:
    """A function from its stored, checked text: only its known names are in scope."""
    tree = function.tree()
    tree.args.defaults, tree.returns = [], None
    for argument in tree.args.args:
        argument.annotation = None
    scope: dict[str, object] = {"__builtins__": {}, "float": _machine_float}
    for dotted, binding in function.bindings.items():
        _bind(scope, dotted, _live_value(binding))
    ast.increment_lineno(tree, function.source.line - 1)
    code = compile(ast.Module([tree], []), function.source.file, "exec")
    exec(code, scope)
    return scope[tree.name]  # pyright: ignore[reportReturnType]


def _live_value(binding: object) -> object:
    if isinstance(binding, Known):
        if binding.where == "builtin":
            is_float = binding.name == "float"
            return _machine_float if is_float else getattr(builtins, binding.name)
        return getattr({"math": _MATH, "numpy": np, "random": random}[binding.where], binding.name)
    if isinstance(binding, FunctionSource):
        return _from_text(binding)
    return _machine_value(binding)


def _bind(scope: dict[str, object], dotted: str, value: object) -> None:
    """Put `np.exp` where the text will look for it."""
    first, *rest = dotted.split(".")
    if not rest:
        scope[first] = value
        return
    holder = scope.setdefault(first, SimpleNamespace())
    for name in rest[:-1]:
        if not hasattr(holder, name):
            setattr(holder, name, SimpleNamespace())
        holder = getattr(holder, name)
    setattr(holder, rest[-1], value)


# -- one vertex from the values of its fields -----------------------------------------------------


def run_in_python(
    vertex: type, fields: Mapping[str, object], *, n_workers: int = N_WORKERS, seed: int = 0
) -> dict[str, Any]:
    """Run one vertex of a class in plain Python and return its fields as it left them.

    Breakpoints and print work in `compute`; an index out of range raises. A field is a number, a
    sequence, or for a list of vectors a sequence of sequences; Outputs need a value for their size.

        >>> run_in_python(RowSum, {"row": [1, 2, 3], "total": 0})["total"]
        6.0

    8-bit floats are F143 at scale 0. Random numbers start from `seed`.
    """
    codelet = codelet_of(vertex)
    wanted = [f.name for f in codelet.spec.fields]
    if sorted(fields) != sorted(wanted):
        raise GraphConnectionError(
            f"codelet {codelet.spec.name!r} has the fields {wanted}, got {list(fields)}.",
            source=codelet.spec.source,
            hint="give every field a value, Outputs too",
        )
    arena = _SmallArena()
    columns = [c for f in codelet.spec.fields for c in _field_columns(f, fields[f.name], arena)]
    if codelet.spec.has_worker_state:
        records = np.zeros((n_workers, random.WORKER_WORDS), np.uint64)
        records[:, : random.STATE_WORDS] = random.seeds_of(seed, n_workers)
        columns.append(np.array([arena.place(records) // 8], np.int64))
    memory, table = arena.memory(), tuple(columns)
    interpret(codelet, memory, table, 0, n_workers)
    left = VertexProxy(codelet, memory, table, 0, n_workers)
    return {name: _plain(getattr(left, name)) for name in wanted}


class _SmallArena:
    """Memory for the fields of one vertex, each aligned to 8 bytes."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.n_bytes = 0

    def place(self, values: np.ndarray) -> int:
        """The byte address of a copy of `values`."""
        at, data = self.n_bytes, np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self.parts += [data, np.zeros(-data.size % 8, np.uint8)]
        self.n_bytes += data.size + -data.size % 8
        return at

    def memory(self) -> np.ndarray:
        return np.concatenate([*self.parts, np.zeros(8, np.uint8)])


def _field_columns(field: FieldSpec, value: Any, arena: _SmallArena) -> list[np.ndarray]:  # noqa: ANN401
    """The columns of a table with one row, in which the field has this value."""
    is_list = field.kind in (FieldKind.VECTOR_LIST, FieldKind.SCALAR_LIST)
    start = [np.array([0, len(value)], np.int64)] if is_list else []
    if field.kind is FieldKind.STATE_VECTOR:
        return [np.array([0, len(value)], np.int64), converted(value, field.type.dtype)]
    if field.kind is FieldKind.STATE:
        return [converted([value], field.type.dtype)]
    parts = [_stored(field, part) for part in (value if is_list else [value])]
    offset = np.array([arena.place(p) // field.type.n_bytes for p in parts], np.int64)
    has_length = field.kind in (FieldKind.VECTOR, FieldKind.VECTOR_LIST)
    length = [np.array([p.size for p in parts], np.int64)] if has_length else []
    metadata = []
    if field.type.requires_metadata:
        byte = arena.place(np.array([pack_metadata(QuarterFormat.F143, 0)], np.uint8))
        metadata = [np.array([byte], np.int64)]
    return [*start, offset, *length, *metadata]


def _stored(field: FieldSpec, value: Any) -> np.ndarray:  # noqa: ANN401
    if field.type.requires_metadata:
        return np.atleast_1d(float32_to_quarter(np.asarray(value), QuarterFormat.F143))
    return np.atleast_1d(converted(value, field.type.dtype))


def _plain(value: object) -> object:
    """A field's value as plain NumPy: a number, an array, or a list of them."""
    if isinstance(value, FieldVector):
        return np.array(value.view(np.ndarray))
    if isinstance(value, list | ScalarList | QuarterVector):
        return [_plain(value[i]) for i in range(len(value))]
    return float(value) if isinstance(value, np.floating) else value
