"""Byte intervals of the address space: unions, and what an edge field covers.

Several passes ask for a union *per tile* (or per pair of chips, …). They shift the intervals of
tile t by t * span, where span is the size of the address space, and take one plain union: address
0 and the end of the space are never used, so intervals of different tiles never touch.
"""

from typing import NamedTuple

import numpy as np

from tremula.base.errors import GraphConnectionError
from tremula.base.source import Source
from tremula.codelets.spec import FieldSpec
from tremula.poplar.tensors.runs import byte_intervals, joined_intervals
from tremula.poplar.vertices.columns import FrozenTable

Ints = np.ndarray


class EdgeBytes(NamedTuple):
    """What one edge field of a table covers: intervals in the order of its runs."""

    begin: Ints
    end: Ints
    row: Ints  # the vertex each interval belongs to
    run: Ints  # and the run


def edge_bytes(table: FrozenTable, spec: FieldSpec) -> EdgeBytes:
    """Byte intervals of a field, for all rows of a table."""
    column = table.edges[spec.name]
    begin, end, run = byte_intervals(column.runs, spec.type.n_bytes)
    row = column.row_of_run()
    return EdgeBytes(begin, end, row if len(row) == len(begin) else row[run], run)


def merge_per_group(group: Ints, begin: Ints, end: Ints, span: int) -> tuple[Ints, Ints, Ints]:
    """The union of intervals within each group: (group, begin, end), sorted."""
    shift = group.astype(np.int64) * span
    return ungrouped(*joined_intervals(begin + shift, end + shift), span)


def ungrouped(low: Ints, high: Ints, span: int) -> tuple[Ints, Ints, Ints]:
    """(group, begin, end) of intervals that were shifted by group * span."""
    group = low // span
    shift = group * span
    return group, low - shift, high - shift


def sum_per_tile(tile: Ints, amount: Ints | None, n_tiles: int) -> Ints:
    """int64[n_tiles]: the sum of `amount` (or the number of rows) on each tile."""
    if amount is None:
        return np.bincount(tile, minlength=n_tiles).astype(np.int64)
    # bincount adds float64: exact up to 2**53 bytes or cycles on one tile.
    return np.bincount(tile, weights=amount, minlength=n_tiles).astype(np.int64)


def field_name(table: FrozenTable, spec: FieldSpec) -> str:
    return f"{table.codelet.spec.name}.{spec.name}"


def source_of_row(table: FrozenTable, row: int) -> Source:
    return table.sources[int(table.source_id[row])]


def edge_error(
    table: FrozenTable, spec: FieldSpec, row: int, what: str, hint: str
) -> GraphConnectionError:
    """The error of one field of one vertex."""
    return GraphConnectionError(
        f"field {field_name(table, spec)} of a vertex on tile {int(table.tile[row])} {what}.",
        source=source_of_row(table, row),
        hint=hint,
    )
