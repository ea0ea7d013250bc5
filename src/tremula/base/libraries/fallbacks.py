"""Python files that stand in for compiled libraries of custom operations, which cannot be loaded.

A script loads `libcube_ops.so` with ctypes or `torch.ops.load_library`, as PopTorch's users do, or
imports `cube_binding.cpp` through cppimport, as PopXL's do. Where that fails, a Python file
`cube_ops.py` (or `libcube_ops.py`) next to it, in the working folder or named by the environment
variable TREMULA_CUSTOM_OPS registers the same operations. Without one, the error says how to make
it.
"""

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from tremula.base.errors import FileLoadError
from tremula.base.libraries.import_hooks import WhenImported
from tremula.base.libraries.operation_template import operators_in
from tremula.base.libraries.patching import install

VARIABLE = "TREMULA_CUSTOM_OPS"
_loaded: dict[Path, ModuleType] = {}


def load_operations(file: str | os.PathLike[str]) -> ModuleType:
    """Run a Python file that registers operations, once; or the one that stands for a library."""
    path = Path(file) if Path(file).suffix == ".py" else _stand_in_of(Path(file))
    if path is None or not path.is_file():
        raise FileLoadError(
            f"there is no file of operations {str(file)!r}.",
            hint=f"write {_names_of(Path(file))[0]} beside it, or set {VARIABLE}"
            " (docs/custom_ops.md)",
        )
    path = path.resolve()
    if path not in _loaded:
        specification = importlib.util.spec_from_file_location(f"tremula_ops_{path.stem}", path)
        assert specification is not None, "it ends in .py"
        assert specification.loader is not None, "and so has a loader"
        module = _loaded[path] = importlib.util.module_from_spec(specification)
        sys.modules[specification.name] = module
        specification.loader.exec_module(module)
    return _loaded[path]


def load_named_operations() -> None:
    """Run the files that the environment names."""
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        load_operations(name)


def stand_in_for_libraries() -> None:
    """Let libraries of operations that cannot be loaded be replaced by Python files."""
    if getattr(ctypes.cdll.LoadLibrary, "has_stand_ins", False):
        return
    setattr(ctypes.cdll, "LoadLibrary", _with_stand_ins(ctypes.cdll.LoadLibrary))  # noqa: B010
    sys.meta_path.append(_CppImports())
    WhenImported().add("torch._ops", _stand_in_for_torch)


def _stand_in_for_torch(module: ModuleType) -> None:
    """`torch.ops.load_library`, which returns nothing."""
    kind = module._Ops
    original = kind.load_library

    def load_library(self: Any, path: str) -> None:  # noqa: ANN401 - PyTorch's namespace
        _with_stand_ins(lambda name: original(self, name))(path)

    install(kind, "load_library", load_library)


def _with_stand_ins(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def load_library(name: Any) -> Any:  # noqa: ANN401 (whatever ctypes takes)
        try:
            return original(name)
        except OSError as error:
            library = Path(os.fspath(name))
            file = _stand_in_of(library)
            if file is None:
                _raise_with_advice(error, library)
            return FallbackLibrary(library, load_operations(file))

    load_library.has_stand_ins = True  # pyright: ignore[reportFunctionMemberAccess]
    return load_library


class FallbackLibrary:
    """What a script gets for a library: functions that it calls are those of the Python file."""

    def __init__(self, library: Path, module: ModuleType):
        self._library, self._module = library, module

    def __getattr__(self, name: str) -> object:
        try:
            return getattr(self._module, name)
        except AttributeError:
            raise AttributeError(
                f"{self._module.__file__}, which stands for {self._library.name}, has no function "
                f"{name!r} that the script calls: define it there"
            ) from None


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


# -- errors that say how to make a stand-in --------------------------------------------------------


def _raise_with_advice(error: OSError, library: Path) -> NoReturn:
    """Raise what the loader raised; for a library that a script names by path, with advice."""
    if len(library.parts) == 1 and not library.is_file():
        raise error  # of the system, as "libcuda.so.1"
    advice = _advice(_names_of(library)[0], library.parent, _sources_near(library))
    raise OSError(f"{error}\n{advice}") from error


def _sources_near(library: Path) -> list[Path]:
    """C++ sources next to a library, and next to the folder it is built in."""
    folders = (
        (library.parent, library.parent.parent) if library.is_absolute() else (library.parent,)
    )
    return [path for folder in folders for path in sorted(folder.glob("*.c*pp"))]


def _advice(file: str, folder: Path, sources: Sequence[Path]) -> str:
    names = [o.name for o in operators_in(path.read_text(errors="replace") for path in sources)]
    listed = f" ({', '.join(names)})" if names else ""
    shown = " ".join(map(str, sources)) if sources else "SOURCES.cpp"
    return (
        f"  Libraries of custom operations{listed} need PopART and cannot be loaded here.\n"
        f"  try: write {folder / file}, which registers them in Python (docs/custom_ops.md); "
        "this prints one to fill in, and their C++ codelets run unchanged:\n"
        f"  tremula codelets --template {shown} > {folder / file}"
    )


# -- cppimport: C++ modules that are built when they are imported ----------------------------------


_COMMENT = "cppimport"  # in the first line of a source that cppimport builds


class _CppImports(importlib.abc.MetaPathFinder):
    """The last finder: gives `cppimport` where it is not installed, and says what C++ files need.

    A Python file of a module's name is found by Python itself, before this.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        del target
        if fullname in {"cppimport", "cppimport.import_hook"}:
            loader = _CppImportLoader()
            is_package = fullname == "cppimport"
            return importlib.machinery.ModuleSpec(fullname, loader, is_package=is_package)
        if "cppimport" not in sys.modules:
            return None
        name = fullname.rpartition(".")[2]
        for folder in path if path is not None else sys.path:
            file = Path(folder or ".", f"{name}.cpp")
            if file.is_file() and _COMMENT in file.read_text(errors="replace").partition("\n")[0]:
                raise ImportError(_advice(f"{name}.py", file.parent, [file]), name=fullname)
        return None


class _CppImportLoader(importlib.abc.Loader):
    """Makes the module `cppimport`: functions that import a stand-in instead of building C++."""

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "cppimport":
            module.imp = imp  # pyright: ignore[reportAttributeAccessIssue]
            module.imp_from_filepath = imp_from_filepath  # pyright: ignore[reportAttributeAccessIssue]


def imp(fullname: str, raise_if_not_found: bool = True) -> ModuleType | None:
    """cppimport's: the module of this name, here the Python file that stands for it."""
    try:
        return importlib.import_module(fullname)
    except ModuleNotFoundError:
        if raise_if_not_found:
            raise
        return None


def imp_from_filepath(filepath: str | os.PathLike[str], fullname: str | None = None) -> ModuleType:
    """cppimport's: the module of a C++ file, here the Python file next to it."""
    del fullname
    file = Path(filepath)
    stand_in = _stand_in_of(file)
    if stand_in is None:
        raise ImportError(_advice(f"{file.stem}.py", file.parent, [file] if file.is_file() else []))
    return load_operations(stand_in)
