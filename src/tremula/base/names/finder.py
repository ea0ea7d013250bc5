"""The finder that puts the names in place, in this process and, by paths, in its children."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

from tremula.base.names.owners import is_ours, is_own_file, owner_of, spec_elsewhere
from tremula.base.names.table import FOLDER, ROWS, SHARED

_VARIABLE = "PYTHONPATH"


class NamesFinder:
    """Finds the packages of the table; `gives_way`: not where another project has the name."""

    is_tremulas = True

    def __init__(self, *, gives_way: bool = False) -> None:
        self._gives_way = gives_way

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del target
        if fullname in SHARED:
            return spec_elsewhere(fullname, path) or _empty_package(fullname)
        row = ROWS.get(fullname)
        if row is None:
            return None
        if self._gives_way:
            other = spec_elsewhere(fullname, path)
            if other is not None and other.loader is not None:
                return _give_way(fullname, other)
        return spec_from_file_location(
            fullname, row.folder / "__init__.py", submodule_search_locations=[str(row.folder)]
        )


def _empty_package(name: str) -> ModuleSpec:
    """A package that only has parts of ours in it."""
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(FOLDER / name)]
    return spec


def _give_way(name: str, other: ModuleSpec) -> ModuleSpec | None:
    """None for a module next to the script, which Python then imports; else an error."""
    if is_own_file(other):
        return None
    raise ImportError(
        f"the name {name!r} belongs to {owner_of(other)}, and tremula-names does not replace it.\n"
        f"  {other.origin}\n"
        "  try: `pip uninstall tremula-names` to import that one, or uninstall that one to import "
        "Tremula's;\n"
        "  `tremula run script.py` runs a script with Tremula's names beside it",
        name=name,
        path=other.origin,
    )


def install() -> None:
    """Let scripts import the names of the table from Tremula, here and in child processes."""
    if not is_installed():
        _check_nothing_else_is_loaded()
        sys.meta_path.insert(0, NamesFinder())
    folder = str(FOLDER)
    if folder not in sys.path:  # for children by spawn; the first entry is the script's folder
        sys.path.insert(1, folder)
    entries = _environment_path()
    if folder not in entries:
        os.environ[_VARIABLE] = os.pathsep.join([folder, *entries])


def uninstall() -> None:
    """Undo `install`: the next import of a name is Python's own."""
    sys.meta_path[:] = [f for f in sys.meta_path if not _is_hook(f)]
    folder = str(FOLDER)
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    entries = [entry for entry in _environment_path() if entry != folder]
    if entries:
        os.environ[_VARIABLE] = os.pathsep.join(entries)
    else:
        os.environ.pop(_VARIABLE, None)
    _forget_modules()


def _forget_modules() -> None:
    """Those of ours leave the table of loaded modules; a real `optimum` loses its part of ours."""
    ours = [name for name in ROWS if is_ours(getattr(sys.modules.get(name), "__file__", None))]
    leaving = {n for n in sys.modules if any(f"{n}.".startswith(f"{own}.") for own in ours)}
    for name in leaving:
        del sys.modules[name]
        parent, _, last = name.rpartition(".")
        if parent in sys.modules and parent not in leaving:  # who holds a package of ours continues
            vars(sys.modules[parent]).pop(last, None)
    for name in SHARED:
        if all(is_ours(entry) for entry in getattr(sys.modules.get(name), "__path__", ["/"])):
            del sys.modules[name]


def is_installed() -> bool:
    """Whether the hook is on in this process."""
    return any(_is_hook(finder) for finder in sys.meta_path)


def _is_hook(finder: object) -> bool:
    return isinstance(finder, NamesFinder) and not finder._gives_way


def _environment_path() -> list[str]:
    return [entry for entry in os.environ.get(_VARIABLE, "").split(os.pathsep) if entry]


def _check_nothing_else_is_loaded() -> None:
    for name in ROWS:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if module is not None and file is not None and not is_ours(file):
            raise ImportError(
                f"{name!r} is already imported from {file}, so Tremula cannot provide it.\n"
                "  try: call tremula.install() before the first import of it, or start the script "
                "with `tremula run script.py`",
                name=name,
                path=file,
            )
