"""What machine code was made from: the texts of a function and of all that it calls.

Numba compiles the functions that a function calls into it, so its stored code is out of date once
any of them changes, whatever file it is in. They are found as Numba finds them, by the names that
the code reads in its module: functions, compiled ones, intrinsics and what these call while they
write instructions, classes, and constants, whose values are part of the code.
"""

import hashlib
import linecache
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

Function = Callable[..., Any]
# Their versions are part of the key of stored code, or fixed by one that is.
_LIBRARIES = frozenset({"numba", "numpy", "llvmlite"}) | sys.stdlib_module_names
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)


@cache
def source_key(function: Function) -> str:
    """A hash of all that decides the machine code of a function, except types and versions."""
    reached: set[object] = {_behind(function)}
    pending, constants = list(reached), set()
    while pending:
        code = _read_by(pending.pop())
        constants |= code.constants
        pending += code.called - reached
        reached |= code.called
    files = {_hash_of_file(file) for file in map(_file_of, reached) if file}
    return _hash("\n".join([*sorted(files), *sorted(constants)]))


class _Read(NamedTuple):
    """What one function or class reads: functions and classes, and constants with their names."""

    called: set[object]
    constants: set[str]


@cache
def _read_by(owner: object) -> _Read:
    result, pending = _Read(set(), set()), [*_named_by(owner)]
    while pending:
        name, value = pending.pop()
        value = _behind(value)
        if isinstance(value, _CONSTANTS):
            result.constants.add(f"{name}={value!r}")
        elif isinstance(value, np.ndarray):
            result.constants.add(f"{name}={value.dtype}{value.shape}{value.tobytes()!r}")
        elif isinstance(value, tuple | list):
            pending += ((f"{name}[{i}]", item) for i, item in enumerate(value))
        elif isinstance(value, partial):
            parts = (value.func, *value.args, *value.keywords.values())
            pending += ((f"{name}({i})", part) for i, part in enumerate(parts))
        elif not isinstance(value, ModuleType):
            code = value if isinstance(value, FunctionType | type) else type(value)
            if not _is_of_library(code.__module__):
                result.called.add(code)
    return result


def _behind(value: object) -> object:
    """The function that was compiled, makes instructions or is cached; other values themselves."""
    if isinstance(value, Dispatcher):
        return value.py_func
    return getattr(value, "_defn" if isinstance(value, _Intrinsic) else "__wrapped__", value)


def _is_of_library(module: str | None) -> bool:
    return (module or "").split(".")[0] in _LIBRARIES


def _file_of(code: object) -> str | None:
    """The file that defines a function or a class."""
    if isinstance(code, FunctionType):
        return code.__code__.co_filename
    return getattr(sys.modules.get(code.__module__), "__file__", None)


def _named_by(code: object) -> Iterator[tuple[str, object]]:
    """Names and values that a function or class refers to."""
    if isinstance(code, FunctionType):
        names = sorted(_names_in(code.__code__))
        for name in names:
            value = code.__globals__.get(name)
            yield name, value
            if isinstance(value, ModuleType) and not _is_of_library(value.__name__):
                yield from ((n, vars(value)[n]) for n in names if n in vars(value))
        cells = zip(code.__code__.co_freevars, code.__closure__ or (), strict=True)
        yield from ((name, cell.cell_contents) for name, cell in cells if _is_set(cell))
        yield from (("default", value) for value in code.__defaults__ or ())
    elif isinstance(code, type):
        yield from ((name, v) for name, v in vars(code).items() if isinstance(v, FunctionType))
        yield from ((base.__name__, base) for base in code.__bases__)


def _is_set(cell: CellType) -> bool:
    """Whether the variable of an enclosing function has a value yet."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _names_in(code: CodeType) -> set[str]:
    """Names that a function and the functions inside it read from the module and of modules."""
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


@cache
def _hash_of_file(file: str) -> str:
    """A hash of a file's text; of the lines that `linecache` has for text that is in no file."""
    if Path(file).is_file():
        return _hash(Path(file).read_text(encoding="utf-8"))
    return _hash("".join(linecache.getlines(file)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
