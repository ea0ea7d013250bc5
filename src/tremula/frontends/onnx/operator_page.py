"""The page docs/onnx.md: which operators there are, in which versions."""

from onnx import defs

from tremula.frontends.onnx.graph import has_body
from tremula.frontends.onnx.table import NEWEST, Operator, all_operators
from tremula.frontends.shared.table import by_family, markdown_table

_HEAD = """# ONNX operators

Every operator with an entry in the table, the versions of its operator set that the entry covers,
and what it computes. Operators that ONNX defines by others and that have no entry are expanded;
they are listed at the end, and so is what is missing. [onnx-design.md](onnx-design.md) says how
models become programs, [from-onnxruntime.md](from-onnxruntime.md) how they are run.

A *static* operand must be known when a model is compiled: a constant, or computed from constants
and shapes. Uncompiled, on the host, it may be anything.

This page is made by `make docs`.
"""


def onnx_markdown() -> str:
    """All entries by family, then operators that are expanded, then those that are missing."""
    families = by_family(all_operators(), lambda entry: entry.family)
    names = {(entry.domain, entry.name) for entry in all_operators()}
    parts = [_HEAD, f"{len(names)} operators in {len(families)} families.\n"]
    for family, entries in families.items():
        title = family.replace(".", ": ").replace("_", " ").capitalize()
        head = ("operator", "versions", "static operands", "")
        parts.append(f"## {title}\n\n" + markdown_table(head, map(_row, entries)))
    expanded, missing = _others(names)
    parts.append(_paragraph("Expanded", "Their definitions are used:", expanded))
    parts.append(
        _paragraph("Missing", "A model that uses one is rejected when it is read:", missing)
    )
    return "\n".join(parts)


def _row(entry: Operator) -> tuple[str, ...]:
    name = f"{entry.domain}.{entry.name}" if entry.domain else entry.name
    until = "" if entry.until == NEWEST else str(entry.until)
    versions = until if until == str(entry.since) else f"{entry.since}–{until}"
    static = ", ".join(f"`{operand}`" for operand in entry.static)
    return f"`{name}`", versions, static, entry.about.replace("|", "\\|")


def _others(names: set[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Operators of ONNX without an entry: those with a definition, and those without."""
    expanded, missing = [], []
    for schema in defs.get_all_schemas():
        if (schema.domain, schema.name) in names or schema.deprecated:
            continue
        name = f"{schema.domain}.{schema.name}" if schema.domain else schema.name
        is_expanded = has_body(schema.domain, schema.name, schema.since_version)
        (expanded if is_expanded else missing).append(f"`{name}`")
    return sorted(expanded), sorted(missing)


def _paragraph(title: str, text: str, names: list[str]) -> str:
    return "\n".join([f"## {title}", "", text, ", ".join(names) + ".", ""])
