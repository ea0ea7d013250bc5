"""Data races: an element one vertex writes and another vertex of the same compute set touches."""

from typing import NamedTuple

import numpy as np

from tremula.base.errors import GraphCycleError
from tremula.codelets.spec import FieldSpec
from tremula.compiler.passes.intervals import EdgeBytes, edge_bytes, field_name, source_of_row
from tremula.compiler.program_ir import FrozenComputeSet
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.columns import FrozenTable


class _Access(NamedTuple):
    """All intervals of one field of one table; `first_vertex` numbers vertices over all tables."""

    table: FrozenTable
    spec: FieldSpec
    first_vertex: int
    edges: EdgeBytes


def check_races(compute_set: FrozenComputeSet, variables: VariableTable) -> None:
    """Raise GraphCycleError if the result could depend on the order of vertices.

    One vertex may reach an element through several of its own fields.
    """
    accesses = _accesses(compute_set)
    written = [a for a in accesses if a.spec.is_written and len(a.edges.begin)]
    if not written:
        return
    lowest = min(int(a.edges.begin.min()) for a in written)
    highest = max(int(a.edges.end.max()) for a in written)
    columns = [_columns(i, a, lowest, highest) for i, a in enumerate(accesses)]
    begin, end, owner, access, place = (np.concatenate(c) for c in zip(*columns, strict=True))
    order = np.argsort(begin, kind="stable")
    is_written = np.array([a.spec.is_written for a in accesses])[access]
    from tremula.compiler.passes.sweeps import find_race

    first, second = find_race(begin[order], end[order], owner[order], is_written[order])
    if first >= 0:
        pair = [(accesses[access[i]], int(place[i])) for i in (order[first], order[second])]
        raise _race_error(compute_set, variables, pair)


def _accesses(compute_set: FrozenComputeSet) -> list[_Access]:
    found, first_vertex = [], 0
    for table in compute_set.tables:
        edges = (spec for spec in table.codelet.spec.fields if spec.is_edge)
        found += [_Access(table, s, first_vertex, edge_bytes(table, s)) for s in edges]
        first_vertex += table.n_rows
    return found


def _columns(
    number: int, access: _Access, lowest: int, highest: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(begin, end, vertex, access, interval) of the non-empty intervals near anything written."""
    begin, end, row, _ = access.edges
    keep = np.flatnonzero((end > begin) & (end > lowest) & (begin < highest))
    vertex = row[keep] + access.first_vertex
    return begin[keep], end[keep], vertex, np.full(len(keep), number, np.int16), keep


def _race_error(
    compute_set: FrozenComputeSet, variables: VariableTable, pair: list[tuple[_Access, int]]
) -> GraphCycleError:
    writers_first = sorted(pair, key=lambda item: not item[0].spec.is_written)
    (writer, at), (other, other_at) = writers_first
    low = max(int(writer.edges.begin[at]), int(other.edges.begin[other_at]))
    high = min(int(writer.edges.end[at]), int(other.edges.end[other_at]))
    row, other_row = int(writer.edges.row[at]), int(other.edges.row[other_at])
    other_tile = int(other.table.tile[other_row])
    verb = "written" if other.spec.is_written else "read"
    return GraphCycleError(
        f"Field {field_name(writer.table, writer.spec)} of a vertex on tile "
        f"{int(writer.table.tile[row])} writes {variables.describe(low, high)} that are {verb} "
        f"elsewhere in compute set {compute_set.name!r}: by a vertex on tile {other_tile} (field "
        f"{field_name(other.table, other.spec)}, {source_of_row(other.table, other_row)}).",
        source=source_of_row(writer.table, row),
        hint="double-buffer: read one variable and write another; or split the vertices into two "
        "compute sets, executed one after the other",
    )
