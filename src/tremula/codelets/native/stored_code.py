"""Numba's compilers with a store of machine code that replaces damaged files: `jit` and `callback`.

Numba's own store is an index and numbered files beside each source file, unpickled as they are: one
that was cut short is an error for every later run. Here each function with its types is one file of
the cache folder, which ends in a checksum and is named by a hash of all that decides its content:
versions, processor, types, and the files of the function and of all that it calls
(`native/sources.py`). A damaged file is replaced, and processes that write at once write the same.
"""

import hashlib
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import sigutils
from numba.core.ccallback import CFunc
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps

from tremula.base.processes import fork_safe
from tremula.base.storage.cache_dir import cache_dir
from tremula.base.storage.checked_file import read_checked, write_checked
from tremula.codelets.native.short_pipeline import ShortPipeline
from tremula.codelets.native.sources import source_key

FOLDER = "native"  # in the cache folder
Function = Callable[..., Any]

fork_safe(global_compiler_lock._lock)  # another thread may compile while a process forks


def jit(signature: str | None = None, **options: Any) -> Callable[[Function], Any]:
    """`numba.njit`, with machine code stored between runs; compiles at once for a signature."""

    def compiled(function: Function) -> Any:
        dispatcher = numba.njit(**options)(function)
        dispatcher._cache = StoredCode(function)  # pyright: ignore[reportAttributeAccessIssue] - not in stubs
        if signature is not None:
            dispatcher.compile(signature)
            dispatcher.disable_compile()
        return dispatcher

    return compiled


def callback(signature: str, **options: Any) -> Callable[[Function], CFunc]:
    """`numba.cfunc`, with machine code stored between runs."""

    def compiled(function: Function) -> CFunc:
        parsed = sigutils.normalize_signature(signature)
        target = {"nopython": True, **options}
        result = CFunc(
            function,
            parsed,
            locals={},
            options=target,
            pipeline_class=ShortPipeline,  # pyright: ignore[reportArgumentType] - stubs want Compiler
        )
        result._cache = StoredCode(function)  # pyright: ignore[reportAttributeAccessIssue] - not in stubs
        result.compile()
        return result

    return compiled


class StoredCode:
    """What Numba asks of the cache of one function."""

    def __init__(self, function: Function):
        self._function, self._file = function, function.__code__.co_filename

    @property
    def cache_path(self) -> str:
        return str(cache_dir() / FOLDER)

    def load_overload(self, signature: Any, target_context: Any) -> CompileResult | None:
        """The function compiled for these types, if it is there and whole."""
        _refresh_once(target_context)
        content = read_checked(self._path(signature, target_context.codegen()))
        if content is None:
            return None
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(content))
        except (ImportError, AttributeError):  # what it refers to is elsewhere now
            return None

    def save_overload(self, signature: Any, compiled: CompileResult) -> None:
        """Store what was compiled, unless it refers to objects of this process."""
        if compiled.library.has_dynamic_globals or any(not x.can_cache for x in compiled.lifted):
            return
        try:
            content = dumps(compiled._reduce())
            write_checked(self._path(signature, compiled.library.codegen), content)
        except OSError as error:
            warn_not_cached(str(error))

    def enable(self) -> None: ...
    def disable(self) -> None: ...
    def flush(self) -> None: ...

    def _path(self, signature: Any, codegen: Any) -> Path:
        function = self._function
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        key = (
            *(_versions(), str(signature), codegen.magic_tuple()),
            *(source_key(function), function.__code__.co_firstlineno),
            dumps(cells) if cells else b"",
        )
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
        name = re.sub(r"[^\w.]", "", f"{Path(self._file).stem}.{function.__qualname__}")
        return Path(self.cache_path) / f"{name}-{digest}.nbc"


@cache
def _refresh_once(target_context: Any) -> None:
    """Let Numba load its tables: loading needs no later entries, and compiling looks for them."""
    target_context.refresh()


@cache
def _versions() -> tuple[str, str]:
    return numba.__version__, sys.implementation.cache_tag


@cache
def warn_not_cached(reason: str) -> None:
    """Warn, once for a reason, that compiled code cannot be stored."""
    warnings.warn(
        f"compiled codelets cannot be cached ({reason}); each process compiles them again. "
        "Set TREMULA_CACHE_DIR to a writable folder.",
        stacklevel=2,
    )
