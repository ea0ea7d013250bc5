"""Where in the user's program something was made: the nearest frame of the user's own code."""

import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from tremula.base.context_values import set_inside

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Applications in Tremula count as user programs.
_USERS = tuple(_PACKAGE + name + os.sep for name in ("commands", "demo", "garden"))
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
# Folders of installed packages: inside that of the standard library, but not part of it.
INSTALLED = ("site-packages", "dist-packages")
# Frozen modules (runpy, importlib) and what torch.fx and NumPy generate.
_GENERATED = ("<frozen ", "<eval_with_key>", "<__array_function__")
_stated: ContextVar["Source | None"] = ContextVar("stated_source", default=None)
_interned: dict[tuple[str, int], "Source"] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A line of the user's program. Interned: the same line is the same object."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def source_at(file: str, line: int) -> Source:
    """The Source of a line. Always use this, so that equal sources are identical."""
    key = (file, line)
    source = _interned.get(key)
    return _interned.setdefault(key, Source(*key)) if source is None else source


def lines_of_function(function: Callable[..., object]) -> tuple[list[str], int]:
    """The lines of a function's source and the number of the first; OSError if there are none.

    As inspect.getsourcelines, which looks at all modules that are loaded to find the file.
    """
    plain: Any = inspect.unwrap(function)  # a function, which has code
    file, first = plain.__code__.co_filename, plain.__code__.co_firstlineno
    linecache.checkcache(file)
    lines = linecache.getlines(file, plain.__globals__)
    if len(lines) < first:
        raise OSError(f"line {first} of {file} cannot be read")
    return inspect.getblock(lines[first - 1 :]), first


@cache
def is_framework_code(file: str) -> bool:
    """Whether a file belongs to Tremula, PyTorch or Python rather than to a user's program."""
    if file.startswith(_GENERATED):
        return True
    if file.startswith(_PACKAGE):
        return not file.startswith(_USERS)
    if file.startswith(_STANDARD_LIBRARY) and not any(name in file for name in INSTALLED):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and file.startswith(os.path.dirname(str(torch.__file__)) + os.sep)


def user_source() -> Source:
    """The line of the nearest caller outside Tremula, PyTorch and Python, or of `at_source`."""
    stated = _stated.get()
    if stated is not None:
        return stated
    frame = sys._getframe(1)
    while is_framework_code(file := frame.f_code.co_filename) or (
        file == "<string>" and frame.f_code.co_name == "__init__"  # made by dataclasses
    ):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return source_at(file, frame.f_lineno)


@contextmanager
def at_source(source: Source | None) -> Iterator[None]:
    """Attribute what this thread makes in the block to a line of a model, not of our caller."""
    with set_inside(_stated, source or _stated.get()):
        yield
