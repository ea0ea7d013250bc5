"""Shims for the age of scripts: rows of tables, put into modules for the time a script runs.

Nothing here is on by default. A name that the installed library has is left alone, except where a
row says that it `replaces` one whose meaning changed.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tremula.base.libraries.import_hooks import WhenImported


@dataclass(frozen=True)
class NameShim:
    """Names of a module that scripts use, and what they get. `make(module, name)` makes one."""

    module: str
    names: tuple[str, ...]
    make: Callable[[ModuleType, str], object]
    reason: str
    replaces: bool = False  # also where the module has the name

    @property
    def shown(self) -> str:
        """The names, as a table shows them."""
        return ", ".join(f"`{self.module}.{name}`" for name in self.names)


@dataclass(frozen=True)
class ModuleShim:
    """A module that scripts import and a library no longer has.

    `names` are those it gets, by where they are now; with `package` it has all of that module.
    """

    module: str
    reason: str
    names: tuple[str, ...] = ()  # "new.module.name", or "old=new.module.name"
    package: str = ""

    @property
    def shown(self) -> str:
        """The module, as a table shows it."""
        return f"`{self.module}`"


Shim = NameShim | ModuleShim
_MISSING = object()


def names(text: str) -> tuple[str, ...]:
    """Words of a text."""
    return tuple(text.split())


def elsewhere(places: dict[str, str]) -> Callable[[ModuleType, str], object]:
    """Values that are attributes of other modules now, by the old name: "module.attribute"."""
    return lambda _module, name: value_at(places[name])


def value_at(path: str) -> Any:  # noqa: ANN401 - whatever a library has there
    """The value at "module.attribute"."""
    module, _, attribute = path.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@contextmanager
def ported(shims: Sequence[Shim]) -> Iterator[None]:
    """Put shims into modules, also those imported later; everything is as before afterwards."""
    undo: list[Callable[[], object]] = []
    hook, finder = WhenImported(), _MissingModules(s for s in shims if isinstance(s, ModuleShim))
    sys.meta_path.append(finder)
    try:
        for name, rows in _by_module(shims).items():
            hook.add(name, lambda module, rows=rows: _apply(module, rows, undo))
        yield
    finally:
        hook.remove()
        sys.meta_path.remove(finder)
        finder.unload()
        for step in reversed(undo):
            step()


def _by_module(shims: Iterable[Shim]) -> dict[str, list[NameShim]]:
    result: dict[str, list[NameShim]] = {}
    for shim in shims:
        if isinstance(shim, NameShim):
            result.setdefault(shim.module, []).append(shim)
    return result


def _apply(module: ModuleType, rows: Iterable[NameShim], undo: list) -> None:
    for row in rows:
        for name in row.names:
            before = vars(module).get(name, _MISSING)
            if before is not _MISSING and not row.replaces:
                continue
            setattr(module, name, row.make(module, name))
            undo.append(lambda name=name, before=before: _restore(module, name, before))


def _restore(module: ModuleType, name: str, before: object) -> None:
    if before is _MISSING:
        vars(module).pop(name, None)
    else:
        setattr(module, name, before)


class _MissingModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: makes modules of the table."""

    def __init__(self, shims: Iterable[ModuleShim]):
        self._shims = {shim.module: shim for shim in shims}
        self.made: list[str] = []
        self._hidden: list[tuple[ModuleType, str, object]] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname not in self._shims:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in self._shims)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def unload(self) -> None:
        """Forget the modules that were made, and what they hid."""
        for name in self.made:
            sys.modules.pop(name, None)
        for owner, name, before in self._hidden:
            _restore(owner, name, before)

    def _keep_attribute(self, module: ModuleType) -> None:
        """Importing `jax.config` hides the object `jax.config`: the module has its attributes."""
        parent, _, name = module.__name__.rpartition(".")
        if not parent:
            return
        owner = sys.modules[parent]
        before = vars(owner).get(name, _MISSING)
        self._hidden.append((owner, name, before))
        if before is not _MISSING:
            vars(module)["__getattr__"] = lambda attribute: getattr(before, attribute)

    def exec_module(self, module: ModuleType) -> None:
        shim = self._shims[module.__name__]
        self.made.append(module.__name__)
        self._keep_attribute(module)
        if shim.package:
            new = importlib.import_module(shim.package)
            vars(module).update({k: v for k, v in vars(new).items() if not k.startswith("__")})
        for entry in shim.names:
            old, _, path = entry.rpartition("=")
            setattr(module, old or path.rpartition(".")[2], value_at(path))
