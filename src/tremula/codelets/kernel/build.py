"""Kernel text → native code, through a file in the cache folder that other processes reuse.

The file's name is a hash of its content, of the code it calls and of the versions, so an entry is
never stale. It is written atomically, so processes may race for it. Numba keeps the machine code
next to it. Imported only when a codelet compiles.
"""

import hashlib
import importlib.util
import linecache
import os
import re
import sys
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
from numba.core.errors import NumbaError, NumbaWarning

from tremula.base.code_fingerprint import code_fingerprint
from tremula.base.errors import GraphProgramCompilationError
from tremula.base.source import Source, source_at
from tremula.base.storage.atomic_file import atomic_file
from tremula.base.storage.cache_dir import cache_dir
from tremula.codelets.kernel.kernel_source import OPTIONS, WITHOUT_REFERENCES
from tremula.codelets.native.stored_code import warn_not_cached
from tremula.codelets.python.function_source import FunctionSource
from tremula.codelets.python.subset import helpers_of

_loaded: dict[str, ModuleType] = {}  # never emptied: others hold addresses of the compiled code


@cache
def _library_hash() -> str:
    """Changes whenever the functions that kernels call, or the compilers, change."""
    called = code_fingerprint("codelets/native", "codelets/python/random.py")
    return f"{numba.__version__} {np.__version__} {called}"


def compile_kernel(name: str, text: str, compute: FunctionSource) -> int:
    """The address of the kernel in this text; compiled once per process and content."""
    key = _key(text)
    if key not in _loaded:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NumbaWarning)
                _loaded[key] = _load_with_or_without_references(key, text)
        except (NumbaError, NotImplementedError) as error:
            raise _explained(name, text, compute, error) from None
    return _loaded[key].kernel.address


def _load_with_or_without_references(key: str, text: str) -> ModuleType:
    """The kernel; one that does allocate is compiled again, with references counted."""
    counted = text.replace(WITHOUT_REFERENCES, OPTIONS)
    try:
        return _load(key, text)
    except NumbaError:
        if counted == text:
            raise
        return _load(_key(counted), counted)


def _key(text: str) -> str:
    return hashlib.sha256((_library_hash() + text).encode()).hexdigest()[:32]


def _load(key: str, text: str) -> ModuleType:
    path = _written(key, text)
    if path is not None:
        try:
            return _import(key, path)
        except OSError as error:  # Numba could not write the machine code
            warn_not_cached(str(error))
    return _in_memory(key, text)


def _written(key: str, text: str) -> Path | None:
    """The text's file in the cache, written if missing or damaged; None if that fails."""
    folder = cache_dir() / "codelets"
    path = folder / f"kernel_{key}.py"
    try:
        if path.is_file() and path.read_text() == text and os.access(folder, os.W_OK):
            return path
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_file(path, "w") as file:
            file.write(text)
    except OSError as error:
        warn_not_cached(str(error))
        return None
    return path


def _import(key: str, path: Path) -> ModuleType:
    name = f"tremula_kernel_{key}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # cached machine code finds the module of its globals by name
    spec.loader.exec_module(module)
    return module


def _in_memory(key: str, text: str) -> ModuleType:
    path = f"<kernel {key}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    module = ModuleType(f"tremula_kernel_{key}")
    exec(compile(text, path, "exec"), module.__dict__)
    return module


def _explained(
    name: str, text: str, compute: FunctionSource, error: Exception
) -> GraphProgramCompilationError:
    """Numba's error in the user's terms: the codelet, the user's line, the reason, the hint."""
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    reason = _reason(message)
    source = _user_line(message, text, compute)
    return GraphProgramCompilationError(
        f"codelet {name!r} does not compile: {reason}", source=source, hint=_hint(reason)
    )


def _user_line(message: str, text: str, compute: FunctionSource) -> Source:
    """The last generated line that the message names and that came from a user's line."""
    lines = text.splitlines()
    functions = {f.name: f for f in [*helpers_of(compute), compute]}
    for number in reversed(re.findall(r'File "[^"]*", line (\d+)', message)):
        index = int(number) - 1
        note = re.search(r"  # (\S+):(\d+)$", lines[index]) if index < len(lines) else None
        if note and note[1] in functions:
            function = functions[note[1]]
            return source_at(function.source.file, function.source.line + int(note[2]) - 1)
    return compute.source


def _reason(message: str) -> str:
    """The line of a long message that matters, without generated names."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    reasons = [line for line in lines if _TELLING.search(line)]
    reason = reasons[-1] if reasons else (lines[1] if len(lines) > 1 else lines[0])
    reason = re.sub(r"^(-|TypingError:|raised.*?:)\s*", "", reason)
    return re.sub(r"_k_(?:x|t|f\d+)?_?", "", reason).rstrip(".") + "."


_TELLING = re.compile(
    r"is not defined|readonly|Cannot unify|needs? integers?|not defined before|"
    r"has no attribute|Use of unsupported|missing a required|too many positional|not supported"
)


def _hint(reason: str) -> str:
    if "readonly" in reason:
        return "declare the field as Output or InOut if compute writes it"
    if "unify" in reason:
        return "give the variable one type in all branches, float32(0) instead of 0 say"
    if "not defined before" in reason or "undefined" in reason:
        return "assign the variable on every path before it is used"
    return "use numbers, vectors of numbers and the functions of math"
