"""The page of operations, made from the table."""

import inspect

from tremula.frontends.popxl.core.registry import FUNCTIONS, ROWS
from tremula.frontends.popxl.ops.collectives import COLLECTIVES
from tremula.frontends.popxl.ops.public import NAMES

_HEAD = """# Operations of PopXL

Every operation of `popxl.ops`, as it is called. Most are functions over PyTorch, from which types,
shapes and gradients follow. *writes*: it changes a tensor; *view*: it is the memory of another.
[popxl.md](popxl.md) says how programs are built and run.

This page is made by `make docs`.
"""
_SUBJECTS = {
    "elementwise": "Elements", "shapes": "Shapes", "reductions": "Reductions",
    "products": "Products, convolutions, pooling", "norms": "Norms and losses",
    "indexing": "Indexing", "images": "Images", "random": "Random numbers",
    "float8": "8-bit floats", "transfers": "Host, remote memory, chips",
    "control": "Calls, loops, branches", "public": "Other names",
    "collectives": "Collectives (`ops.collectives`)",
    "var_updates": "Updates (`ops.var_updates`)",
}  # fmt: skip


def ops_markdown() -> str:
    """All operations by subject, as Markdown."""
    subjects: dict[str, list[str]] = {name: [] for name in _SUBJECTS}
    for name in NAMES:
        module = FUNCTIONS[name].__module__.rsplit(".", 1)[-1]
        subjects[module].append(_line(name))
    parts = [_HEAD]
    for module, lines in subjects.items():
        parts.append(
            f"\n## {_SUBJECTS[module]}\n\n| call | |\n|---|---|\n" + "\n".join(lines) + "\n"
        )
    return "".join(parts) + f"\n{len(NAMES)} operations.\n"


def _line(name: str) -> str:
    function, row = FUNCTIONS[name], ROWS.get(name)
    parameters = inspect.signature(function).parameters.values()
    call = f"{name}({', '.join(_parameter(p) for p in parameters)})"
    text = (inspect.getdoc(function) or "").split("\n")[0]
    marks = []
    if row is not None and row.modifies:
        marks.append("*writes*")
    if row is not None and row.is_view:
        marks.append("*view*")
    if name in COLLECTIVES and name.endswith("_"):
        marks.append("*writes*")
    return f"| `{call}` | {' '.join([*marks, text])} |".replace("  |", " |")


def _parameter(p: inspect.Parameter) -> str:
    star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    default = p.default
    if default is p.empty:
        return star + p.name
    shown = default.name if hasattr(default, "n_bytes") else repr(default)
    return f"{p.name}={shown}"
