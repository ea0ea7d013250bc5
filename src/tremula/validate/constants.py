"""The list of what was fitted: constants of codelets and workloads, and of chips and systems."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib import import_module
from pkgutil import walk_packages

from tremula.base.provenance import FITTED, FittedConstant
from tremula.hardware import CHIPS, SYSTEMS
from tremula.validate.rows import GRID, LINK_ROWS, MORE, PUBLISHED, read_rows

_PACKAGES = ("tremula.poplibs", "tremula.validate.workloads")


def fitted_constants() -> list[FittedConstant]:
    """All of them, by name; modules that may have some are imported."""
    for name in _PACKAGES:
        package = import_module(name)
        for module in walk_packages(package.__path__, f"{name}."):
            import_module(module.name)
    return sorted(FITTED.values(), key=lambda one: one.name)


def rows_used(constant: FittedConstant) -> list[str]:
    """Identifiers of the shipped rows that a constant was fitted to."""
    ids = [row.id for path in (PUBLISHED, MORE, LINK_ROWS, GRID) for row in read_rows(path)]
    return [one for one in ids if any(fnmatchcase(one, pattern) for pattern in constant.rows)]


def constants_page() -> str:
    """Markdown: what was fitted, and what chips and systems have derived from measurements."""
    return "\n".join((*_fitted_lines(), "", *_derived_lines(), ""))


def _fitted_lines() -> Iterator[str]:
    yield "| constant | value | what | from | rows |"
    yield "|---|---|---|---|---|"
    for one in fitted_constants():
        n = len(rows_used(one))
        rows = f"{', '.join(f'`{name}`' for name in one.rows)} ({n})" if one.rows else "not shipped"
        yield f"| `{one.name}` | {one.value:g} | {one.unit} | {one.source} | {rows} |"


def _derived_lines() -> Iterator[str]:
    yield "| constant | of | value | from |"
    yield "|---|---|---|---|"
    for owner in (*CHIPS.values(), *SYSTEMS.values()):
        for name, fact in owner.facts.items():
            if fact.provenance in ("derived", "fitted"):
                yield f"| `{name}` | {owner.name} | {fact.value} | {fact.source} |"
