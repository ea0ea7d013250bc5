"""Tables as text, and annotations that are aliases of types."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def table_to_string(
    rows: Sequence[Sequence[object]], delimiter: str = " | ", header: bool = True
) -> str:
    """Rows of equal length as lines with columns of equal width; the first may be a header."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        delimiter.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    ]
    if header and len(lines) > 1:
        lines.insert(1, "-" * (len(lines[0]) + 1))
    return "".join(f"{line}\n" for line in lines)


def NewAliasAnnotation(name: str, tp: T) -> T:
    """An annotation that a type checker reads as `tp`, and that programs can recognise."""

    def annotation(*_args: object) -> object:
        raise NotImplementedError(f"{name} is an annotation only: use {tp} for values")

    annotation.__name__ = name
    return annotation  # type: ignore[return-value]
