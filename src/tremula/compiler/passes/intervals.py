"""Byte intervals of the address space: unions, and what an edge field covers.

Several passes ask for a union *per tile* (or per pair of chips, …). To sort their intervals, those
of tile t are shifted by t * span, where span is the size of the address space.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tremula.base.errors import GraphConnectionError
from tremula.base.source import Source
from tremula.codelets.spec import FieldSpec
from tremula.compiler.passes.piece_sweeps import union_per_tile
from tremula.compiler.program_ir import FrozenComputeSet
from tremula.poplar.tensors.interval_sweeps import add_per_tile
from tremula.poplar.tensors.runs import byte_intervals, sorted_ends
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


class Edge(NamedTuple):
    """An edge field of a table of a compute set, and what it covers."""

    table: FrozenTable
    spec: FieldSpec
    intervals: EdgeBytes


def edges_of_set(compute_set: FrozenComputeSet) -> list[Edge]:
    """All edge fields of a compute set."""
    return edges_of_tables(compute_set.tables)


def edges_of_tables(tables: Iterable[FrozenTable]) -> list[Edge]:
    """All edge fields of vertex tables."""
    return [
        Edge(table, spec, edge_bytes(table, spec))
        for table in tables
        for spec in table.codelet.spec.fields
        if spec.is_edge
    ]


class TileUnion(NamedTuple):
    """The union of intervals within each tile, sorted; and of all tiles three counts."""

    tile: Ints
    low: Ints
    high: Ints
    n_bytes: Ints  # int64[n_tiles], as are the others
    n_new: Ints  # intervals that brought new bytes, in their order
    n_joined: Ints  # intervals of the union


def union_on_tiles(tile: Ints, low: Ints, high: Ints, n_tiles: int, span: int) -> TileUnion:
    """The union of intervals within each tile; if they are not sorted, equal ones stay in order."""
    result, ascend = _joined(tile, low, high, n_tiles)
    if not ascend:
        order = np.argsort(tile.astype(np.int64) * span + low, kind="stable")
        result, _ = _joined(tile[order], low[order], high[order], n_tiles)
    return result


def merge_per_group(group: Ints, begin: Ints, end: Ints, n_groups: int, span: int) -> TileUnion:
    """The union of intervals within each group, whatever their order; `n_new` says nothing."""
    result, ascend = _joined(group, begin, end, n_groups)
    if not ascend:
        shift = result.tile * span
        low, high = sorted_ends(result.low + shift, result.high + shift)
        group = low // span
        shift = group * span
        result, _ = _joined(group, low - shift, high - shift, n_groups)
    return result


def _joined(tile: Ints, low: Ints, high: Ints, n_tiles: int) -> tuple[TileUnion, int]:
    """What `union_per_tile` makes of intervals: a union if they ascend."""
    counts = np.zeros((3, n_tiles), np.int64)
    joined = np.empty((3, len(tile)), np.int64)
    n, ascend = union_per_tile(tile, low, high, counts, joined)
    return TileUnion(*joined[:, :n], *counts), ascend


def sum_per_tile(tile: Ints, amount: Ints | None, n_tiles: int) -> Ints:
    """int64[n_tiles]: the sum of `amount` (or the number of rows) on each tile."""
    if amount is None:
        return np.bincount(tile, minlength=n_tiles).astype(np.int64)
    total = np.zeros(n_tiles, np.int64)
    add_per_tile(tile, amount, total)
    return total


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
