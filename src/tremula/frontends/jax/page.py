"""The page of primitives that have a translation, made from the table."""

from tremula.frontends.jax.table import entries

_HEAD = """# Primitives of JAX

What `tremula.jax.jit` translates. A primitive that is not here is an error: it names the primitive
and your line.
[jax.md](jax.md) says how a function of JAX becomes a program.

This page is made by `make docs`.

| family | primitives |
|---|---|
"""


def primitives_markdown() -> str:
    """The table by family, as Markdown."""
    families: dict[str, list[str]] = {}
    for entry in entries().values():
        families.setdefault(entry.family, []).append(f"`{entry.name}`")
    rows = [
        f"| {family} | {' '.join(sorted(names))} |" for family, names in sorted(families.items())
    ]
    return _HEAD + "\n".join(rows) + f"\n\n{len(entries())} primitives.\n"
