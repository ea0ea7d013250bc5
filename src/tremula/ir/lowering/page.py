"""The page of ATen operations that tile programs are made of: docs/aten.md, from the table."""

from collections import defaultdict

from tremula.ir.lowering.table import Lowering, all_lowerings

_HEAD = """# ATen on tiles

The operations of PyTorch that tile programs are made of, and the PopLibs calls that each becomes.
Others are first spelled out in these (`tremula.ir.passes.decompose`); one that cannot be is an
error that names it, its module and its line. [lowering.md](lowering.md) says how to add one.

This page is made by `make docs`.
"""


def aten_markdown() -> str:
    """All lowerings, by the file they are in."""
    families: dict[str, list[Lowering]] = defaultdict(list)
    for lowering in all_lowerings():
        families[lowering.build.__module__.rpartition(".")[2]].append(lowering)
    n_all = sum(len(own) for own in families.values())
    parts = [_HEAD, f"{n_all} overloads in {len(families)} families.\n"]
    for family in sorted(families):
        rows = [_row(lowering) for lowering in families[family]]
        title = family.replace("_", " ").capitalize()
        table = [f"## {title}", "", "| operation | becomes |", "|---|---|", *rows, ""]
        parts.append("\n".join(table))
    return "\n".join(parts)


def _row(lowering: Lowering) -> str:
    return f"| `{lowering.name.removeprefix('aten::')}` | {lowering.calls or 'nothing: a view'} |"
