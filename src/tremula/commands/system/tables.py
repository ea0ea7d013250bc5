"""Tables as text: columns as wide as what is in them, or the same rows as JSON."""

import json
from collections.abc import Mapping, Sequence


def table(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str]) -> str:
    """Rows as text; `columns` is key → heading."""
    cells = [[_shown(row.get(key)) for key in columns] for row in rows]
    heads = list(columns.values())
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [heads, ["-" * width for width in widths], *cells]
    texts = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(text.rstrip() for text in texts)


def show(
    rows: Sequence[Mapping[str, object]], columns: Mapping[str, str], *, as_json: bool
) -> None:
    """Print rows, as a table or as JSON."""
    print(json.dumps(list(rows), indent=2) if as_json else table(rows, columns))


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "-"
    return str(value)
