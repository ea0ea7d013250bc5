"""`popxl.ops`: every operation by name, and the page of them."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

from tremula.base.errors import suggest
from tremula.frontends.popxl.core.registry import FUNCTIONS, ROWS
from tremula.frontends.shared.table import markdown_table, summary

_HIDDEN = {"constant", "sum_of"}  # helpers that other operations are made of


def operation_names() -> list[str]:
    """The public operations, in alphabetical order."""
    names = FUNCTIONS.rows()
    return sorted(name for name in names if not name.startswith("_") and name not in _HIDDEN)


def function_of(name: str) -> Callable[..., Any]:
    """A public operation, or an error that names similar ones."""
    functions = FUNCTIONS.rows()
    if name not in functions:
        raise AttributeError(f"popxl.ops has no operation {name!r}: {suggest(name, functions)}")
    return functions[name]


# -- the page --------------------------------------------------------------------------------------

_PAGE_HEAD = """# Operations of PopXL

Every operation of `popxl.ops`, as it is called. Most are functions over PyTorch, from which types,
shapes and gradients follow. *writes*: it changes a tensor; *view*: it is the memory of another.
[popxl.md](popxl.md) says how programs are built and run.

This page is made by `make docs`.
"""


def ops_markdown() -> str:
    """The page docs/popxl-ops.md: all operations by subject, in the order the subjects say."""
    sections: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for name in operation_names():
        module = sys.modules[function_of(name).__module__]
        sections.setdefault(module.PAGE_SECTION, []).append(_row(name))
    parts = [
        f"\n## {title}\n\n" + markdown_table(("call", ""), sections[number, title])
        for number, title in sorted(sections)
    ]
    return _PAGE_HEAD + "".join(parts) + f"\n{len(operation_names())} operations.\n"


def _row(name: str) -> tuple[str, str]:
    function, row = function_of(name), ROWS.get(name)
    parameters = inspect.signature(function).parameters.values()
    call = f"{name}({', '.join(_parameter(p) for p in parameters)})"
    is_view = row is not None and row.is_view
    writes = bool(row.modifies) if row is not None else name.endswith("_")
    marks = [*["*writes*"] * writes, *["*view*"] * is_view]
    return f"`{call}`", " ".join([*marks, summary(function)]).strip()


def _parameter(p: inspect.Parameter) -> str:
    star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    default = p.default
    if default is p.empty:
        return star + p.name
    shown = default.name if hasattr(default, "n_bytes") else repr(default)
    return f"{p.name}={shown}"
