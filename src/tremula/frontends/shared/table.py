"""Tables of operators: functions entered by decorators in the modules of a folder, and pages.

    RULES: Table[str, Rule] = Table("tremula.frontends.jax.rules")

    RULES.enter("add", Rule(...))  # what a decorator does, in a module of that folder
    RULES.rows()  # imports the folder's modules, once; a new file needs no list that names it

The family of an entry is the module that holds it. Pages of operators are made of families.
"""

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Generic, TypeVar

Key = TypeVar("Key")
Entry = TypeVar("Entry")


class Table(Generic[Key, Entry]):
    """Entries by key, entered by the modules of a package, which are imported on first use."""

    def __init__(self, package: str):
        self.package = package
        self._rows: dict[Key, Entry] = {}
        self._is_loaded = False

    def enter(self, key: Key, entry: Entry) -> None:
        """Add an entry; a key has one entry, whatever the order of imports."""
        if key in self._rows:
            raise ValueError(f"{key} has two entries in the table of {self.package}")
        self._rows[key] = entry

    def entered(self, key: Key, make: Callable[[], Entry]) -> Entry:
        """The entry of a key, made if there is none: for tables with several rows under one key."""
        if key not in self._rows:
            self._rows[key] = make()
        return self._rows[key]

    def rows(self) -> Mapping[Key, Entry]:
        """All entries, after the package's modules were imported."""
        if not self._is_loaded:
            self._is_loaded = True
            load_package(self.package)
        return self._rows

    def family_of(self, function: Callable) -> str:
        """The module of the package that holds a function, with dots for sub-folders."""
        return function.__module__.removeprefix(f"{self.package}.")


def load_package(name: str) -> None:
    """Import every module of a package and of its sub-packages."""
    package = import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        import_module(module.name)


def by_family(entries: Iterable[Entry], family: Callable[[Entry], str]) -> dict[str, list[Entry]]:
    """Entries by the name of their family, families in alphabetical order."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(family(entry), []).append(entry)
    return dict(sorted(groups.items()))


# -- pages -----------------------------------------------------------------------------------------


def summary(function: Callable) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(function) or "").partition("\n")[0]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; an empty cell is one space wide. Ends in a line break."""
    lines = [_line(head), "|" + "---|" * len(head), *(_line(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)
