"""Modules that only redirect: made from a table, so that a name of another library has one row.

    add_modules("popxl", {"ir": "tremula.frontends.popxl.core.ir: Ir", ...})

enters `popxl.ir` among the loaded modules, with the name `Ir`. A package keeps what its names are:
a function that has the name of a module (`popxl.remote_buffer`) stays a function, however the
module is imported.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

from tremula.base.errors import suggest


def add_modules(package: str, table: Mapping[str, str | Iterable[str]]) -> dict[str, ModuleType]:
    """Make the modules of a table; each value is one or several `"source.module: name other"`.

    A name that differs from the source's is written `name=source_name`. A module that a file of
    the package defines is not replaced.
    """
    made = {}
    for name, sources in table.items():
        rows = [sources] if isinstance(sources, str) else sources
        made[name] = _module(f"{package}.{name}", names_of(*rows))
    for name, module in made.items():
        parent, _, last = f"{package}.{name}".rpartition(".")
        owner = made.get(parent.removeprefix(f"{package}."))
        if owner is not None:
            owner.__path__ = []  # type: ignore[attr-defined]  a package
            owner.__dict__.setdefault(last, module)
    return made


def _module(name: str, names: Mapping[str, object]) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name, f"{name}: names only; the code is in tremula.")
    module.__spec__ = ModuleSpec(name, None)
    module.__package__ = name.rpartition(".")[0]
    module.__dict__.update(names)
    module.__dict__["__all__"] = sorted(names)
    module.__dict__["__getattr__"] = _missing(name, names)
    sys.modules[name] = module
    return module


def names_of(*sources: str) -> dict[str, object]:
    """The values of names by rows `"source.module: name other=source_name"`."""
    result = {}
    for source in sources:
        path, _, words = source.partition(":")
        module = import_module(path.strip())
        for word in words.split():
            name, _, original = word.partition("=")
            result[name] = getattr(module, original or name)
    return result


def _missing(module: str, names: Mapping[str, object]) -> Callable[[str], object]:
    def missing(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}: {suggest(name, names)}")

    return missing
