"""Python files that stand in for compiled libraries of custom operations, which cannot be loaded.

A script loads `libcube_ops.so` with ctypes, as PopTorch's users do. Where that fails, a Python file
`cube_ops.py` (or `libcube_ops.py`) beside it, in the working folder or named by the environment
variable TREMULA_CUSTOM_OPS registers the same operations.
"""

import ctypes
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from tremula.base.errors import FileLoadError

VARIABLE = "TREMULA_CUSTOM_OPS"
_loaded: set[Path] = set()


def load_operations(file: str | os.PathLike[str]) -> None:
    """Run a Python file that registers operations, once; or the one that stands for a library."""
    path = Path(file) if Path(file).suffix == ".py" else _stand_in_of(Path(file))
    if path is None or not path.is_file():
        raise FileLoadError(
            f"there is no file of operations {str(file)!r}.",
            hint=f"write {_names_of(Path(file))[0]} beside it, or set {VARIABLE}"
            " (docs/custom_ops.md)",
        )
    path = path.resolve()
    if path in _loaded:
        return
    _loaded.add(path)
    specification = importlib.util.spec_from_file_location(f"tremula_ops_{path.stem}", path)
    assert specification is not None, "it ends in .py"
    assert specification.loader is not None, "and so has a loader"
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)


def load_named_operations() -> None:
    """Run the files that the environment names."""
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        load_operations(name)


def stand_in_for_libraries() -> None:
    """Let `ctypes.cdll.LoadLibrary` take the stand-in of a library that cannot be loaded."""
    original = ctypes.cdll.LoadLibrary
    if getattr(original, "has_stand_ins", False):
        return

    def load_library(name: Any) -> ctypes.CDLL:  # noqa: ANN401 (whatever ctypes takes)
        try:
            return original(name)
        except OSError:
            result = _stand_in_of(Path(os.fspath(name)))
            if result is None:
                raise
            load_operations(result)
            return ctypes.CDLL(None)  # something to hold; the operations are registered

    load_library.has_stand_ins = True  # pyright: ignore[reportFunctionMemberAccess]
    ctypes.cdll.LoadLibrary = load_library


def _stand_in_of(library: Path) -> Path | None:
    names = _names_of(library)
    for folder in (library.parent, Path.cwd()):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    named = [Path(n) for n in os.environ.get(VARIABLE, "").split(os.pathsep) if n]
    return next((path for path in named if path.name in names), None)


def _names_of(library: Path) -> list[str]:
    stem = library.name.partition(".")[0]
    return [f"{stem.removeprefix('lib')}.py", f"{stem}.py"]
