"""Checks of a lowered program before anything is computed from it, as a table of named checks."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from tremula.base.errors import (
    ControlProgramError,
    GraphCycleError,
    InvalidTileMapping,
    MemoryElemConstraintsError,
    OverflowInField,
    StreamMemoryAllocationError,
)
from tremula.codelets.spec import FieldKind, FieldSpec
from tremula.compiler.passes.intervals import (
    EdgeBytes,
    edge_bytes,
    edge_error,
    field_name,
    source_of_row,
)
from tremula.compiler.passes.parallel import in_parallel
from tremula.compiler.passes.sweeps import find_race
from tremula.compiler.program_ir import FrozenComputeSet, LoweredPrograms, StepKind
from tremula.poplar.tensors.runs import joined_intervals
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.columns import EdgeColumn, FrozenTable


class _Touched(NamedTuple):
    """What a field or a step touches."""

    intervals: Callable[[], tuple[np.ndarray, ...]]  # begins and ends in bytes, and more
    n_runs: int = 0  # 0: not known yet, mostly few


# Longest vector a layout can describe: the length of a SHORT_SPAN has 11 bits.
MAX_ELEMS_OF_LAYOUT = {"SHORT_SPAN": 2047}
_DIFFERENT_ELEMENTS = re.compile(r"elem\(\s*\*\s*(\w+)[^)]*\)\s*!=\s*elem\(\s*\*\s*(\w+)[^)]*\)")


def verify(programs: LoweredPrograms) -> None:
    """Run every check; raise the first error."""
    for _, check in CHECKS:
        check(programs)


def check_vertices_mapped(programs: LoweredPrograms) -> None:
    n_tiles = programs.graph.target.n_tiles
    for compute_set, table in _tables(programs):
        bad = np.flatnonzero((table.tile < 0) | (table.tile >= n_tiles))
        if len(bad):
            row = int(bad[0])
            tile = int(table.tile[row])
            what = "is not mapped to a tile" if tile < 0 else f"is mapped to tile {tile}"
            raise InvalidTileMapping(
                f"a vertex {table.codelet.spec.name} in compute set {compute_set.name!r} {what}; "
                f"expected a tile from 0 to {n_tiles - 1} ({len(bad)} such vertices).",
                source=source_of_row(table, row),
                hint="give add_vertex(…, tile=n), or call graph.set_tile_mapping(vertex, n)",
            )


def check_data_mapped(programs: LoweredPrograms) -> None:
    tile_map = programs.graph.tile_map

    def check(touched: _Touched) -> None:
        intervals = touched.intervals()[:2]
        if not tile_map.covers(*intervals):
            gap = tile_map.first_gap(*joined_intervals(*intervals))
            assert gap is not None, "something is not mapped"
            raise programs.graph.variables.unmapped_error(*gap)

    in_parallel(check, _used_intervals(programs), lambda touched: touched.n_runs)


def check_data_on_tiles(programs: LoweredPrograms) -> None:
    tile_map, n_tiles = programs.graph.tile_map, programs.graph.target.n_tiles
    bad = np.flatnonzero((tile_map.tile < 0) | (tile_map.tile >= n_tiles))
    if len(bad):
        low, high = int(tile_map.begin[bad[0]]), int(tile_map.end[bad[0]])
        variables = programs.graph.variables
        raise InvalidTileMapping(
            f"{variables.describe(low, high)} are mapped to tile {int(tile_map.tile[bad[0]])}; "
            f"expected a tile from 0 to {n_tiles - 1}.",
            source=variables.sources[variables.id_at(low)],
            hint="map it to a tile that exists",
        )


def check_no_constant_written(programs: LoweredPrograms) -> None:
    variables = programs.graph.variables
    if not any(variables.is_constant):
        return
    is_constant = np.array(variables.is_constant)
    for _, table, spec in _edges(programs):
        column = table.edges[spec.name] if spec.is_written else None
        if column is None or not len(column.runs.start):
            continue
        # A run never leaves its variable.
        starts, size = column.runs.start, spec.type.n_bytes
        if is_constant[variables.holders_of(starts, size)].any():
            variable = variables.ids_at(starts * size)
            bad = int(np.flatnonzero(is_constant[variable])[0])
            what = f"writes to the constant {variables.names[int(variable[bad])]!r}"
            hint = "connect a variable: add_variable instead of add_constant"
            raise edge_error(table, spec, int(column.row_of_run()[bad]), what, hint)
    for step in programs.steps:
        for tensor in step.writes:
            if step.kind is not StepKind.WRITE_UNDEF and tensor.contains_constant:
                raise ControlProgramError(
                    f"step {step.name!r} writes to a constant.",
                    source=step.source,
                    hint="use add_variable instead of add_constant",
                )


def check_outputs_distinct(programs: LoweredPrograms) -> None:
    for _, table, spec in _edges(programs):
        if spec.is_written:
            row = _row_with_repeat(table, spec)
            if row >= 0:
                what = "writes the same element twice"
                raise edge_error(table, spec, row, what, "connect the tensor before broadcast")


def check_layouts(programs: LoweredPrograms) -> None:
    for _, table, spec in _edges(programs):
        limit = MAX_ELEMS_OF_LAYOUT.get(spec.layout)
        if limit is None or spec.kind not in (FieldKind.VECTOR, FieldKind.VECTOR_LIST):
            continue
        lengths = table.edges[spec.name].sub_lengths()
        bad = np.flatnonzero(lengths > limit)
        if len(bad):
            row = _row_of_sub(table.edges[spec.name], int(bad[0]))
            raise OverflowInField(
                f"field {field_name(table, spec)} has layout {spec.layout} and holds at most "
                f"{limit} elements, got {int(lengths[bad[0]])}.",
                source=source_of_row(table, row),
                hint="connect a shorter vector, or declare the field with layout SPAN",
            )


def check_memory_elements(programs: LoweredPrograms) -> None:
    """Fields that must be in different memory elements must not share bytes of a tile."""
    for _, table in _tables(programs):
        spec = table.codelet.spec
        for constraint in spec.constraints:
            for pair in _DIFFERENT_ELEMENTS.findall(constraint):
                one, other = (spec.field(name) for name in pair)
                row = _row_that_shares(programs, table, one, other)
                if row >= 0:
                    raise MemoryElemConstraintsError(
                        f"fields {one.name} and {other.name} of {spec.name} share elements on the "
                        f"vertex's tile, but the codelet wants {constraint}.",
                        source=source_of_row(table, row),
                        hint="connect a copy to one of them, or drop the constraint",
                    )


def check_remote_buffers(programs: LoweredPrograms) -> None:
    """Machines with streaming memory keep remote buffers there; without any, the host does."""
    graph = programs.graph
    assert graph.target.system is not None, "a target has a system from its start"
    n_there = graph.target.system.n_bytes_dram
    buffers = {
        name: b.type.n_bytes * b.n_elements * b.repeats * graph.replication_factor
        for name, b in graph.handles.remote_buffers.items()
    }
    n_needed = sum(buffers.values())
    if 0 < n_there < n_needed:
        largest = max(buffers, key=lambda name: buffers[name])
        raise StreamMemoryAllocationError(
            f"remote buffers need {n_needed:,} bytes but the streaming memory of "
            f"{graph.target.system.name} has {n_there:,}; the largest is {largest!r}, "
            f"{buffers[largest]:,}.",
            hint="use smaller or fewer buffers, or a system with more machines",
        )


def check_no_races(programs: LoweredPrograms) -> None:
    variables = programs.graph.variables
    in_parallel(
        lambda compute_set: check_races(compute_set, variables),
        _different_sets(programs),
        lambda compute_set: compute_set.n_runs,
    )


# In order: later checks rely on earlier ones.
CHECKS: tuple[tuple[str, Callable[[LoweredPrograms], None]], ...] = (
    ("every vertex is mapped", check_vertices_mapped),
    ("all used data is mapped", check_data_mapped),
    ("data is mapped to tiles that exist", check_data_on_tiles),
    ("no constant is written", check_no_constant_written),
    ("a written field holds no element twice", check_outputs_distinct),
    ("vectors fit their layout", check_layouts),
    ("memory elements can differ", check_memory_elements),
    ("remote buffers fit", check_remote_buffers),
    ("no data races", check_no_races),
)


def _tables(programs: LoweredPrograms) -> Iterator[tuple[FrozenComputeSet, FrozenTable]]:
    for compute_set in _different_sets(programs):
        for table in compute_set.tables:
            yield compute_set, table


def _different_sets(programs: LoweredPrograms) -> list[FrozenComputeSet]:
    """The first of each kind of compute set: what holds for it holds for those like it."""
    firsts = np.unique(programs.graph.set_on_chips().first).tolist()
    return [programs.graph.compute_sets[number] for number in firsts]


def _edges(
    programs: LoweredPrograms,
) -> Iterator[tuple[FrozenComputeSet, FrozenTable, FieldSpec]]:
    for compute_set, table in _tables(programs):
        for spec in table.codelet.spec.fields:
            if spec.is_edge:
                yield compute_set, table, spec


def _used_intervals(programs: LoweredPrograms) -> Iterator[_Touched]:
    """What each field and each step touches."""
    for _, table, spec in _edges(programs):
        n_runs = len(table.edges[spec.name].runs.start)
        yield _Touched(partial(edge_bytes, table, spec), n_runs)
    copy_of_step = programs.copies_by_step()
    for number, step in enumerate(programs.steps):
        copy = copy_of_step.get(number)
        is_repeated = copy is not None and programs.alike_copies[copy].first_on_chips < copy
        if step.kind is not StepKind.WRITE_UNDEF and not is_repeated:
            for tensor in (*step.reads, *step.writes):
                yield _Touched(tensor.covered_intervals)


def _row_with_repeat(table: FrozenTable, spec: FieldSpec) -> int:
    """The first row whose field holds an element twice, or -1."""
    column = table.edges[spec.name]
    runs = column.runs
    still = np.flatnonzero((runs.stride == 0) & (runs.count > 1))
    if len(still):
        return int(column.row_of_run()[still[0]])
    if len(runs.start) == column.n_rows:
        return -1
    begin, end, row, _ = edge_bytes(table, spec)
    if not bool(((begin[1:] >= end[:-1]) | (row[1:] != row[:-1])).all()):
        order = np.lexsort((begin, row))
        begin, end, row = begin[order], end[order], row[order]
    overlaps = np.flatnonzero((begin[1:] < end[:-1]) & (row[1:] == row[:-1]))
    return int(row[overlaps[0]]) if len(overlaps) else -1


def _row_that_shares(
    programs: LoweredPrograms, table: FrozenTable, one: FieldSpec, other: FieldSpec
) -> int:
    """The first row in which two fields share bytes of the vertex's own tile, or -1.

    What comes from another tile is a copy, which can be placed anywhere.
    """
    ranges = [edge_bytes(table, spec)[:3] for spec in (one, other)]
    begin, end, row = (np.concatenate(columns) for columns in zip(*ranges, strict=True))
    field = np.repeat((0, 1), [len(columns[0]) for columns in ranges])
    order = np.lexsort((begin, row))
    begin, end, row, field = begin[order], end[order], row[order], field[order]
    shared = (begin[1:] < end[:-1]) & (row[1:] == row[:-1]) & (field[1:] != field[:-1])
    low = begin[1:][shared]
    owner, _, _, home = programs.graph.tile_map.split(low, np.minimum(end[:-1], end[1:])[shared])
    rows = row[1:][shared][owner]
    here = np.flatnonzero(table.tile[rows] == home)
    return int(rows[here[0]]) if len(here) else -1


def _row_of_sub(column: EdgeColumn, sub: int) -> int:
    return int(np.searchsorted(column.sub_start, sub, side="right")) - 1


# -- data races: one vertex writes what another of the same compute set touches --------------------


class _Access(NamedTuple):
    """All intervals of one field of one table; `first_vertex` numbers vertices over all tables."""

    table: FrozenTable
    spec: FieldSpec
    first_vertex: int
    edges: EdgeBytes


def check_races(compute_set: FrozenComputeSet, variables: VariableTable) -> None:
    """Raise GraphCycleError if the result could depend on the order of vertices.

    One vertex may reach an element through several fields.
    """
    accesses = _accesses(compute_set)
    written = [a for a in accesses if a.spec.is_written and len(a.edges.begin)]
    if not written:
        return
    lowest = min(int(a.edges.begin.min()) for a in written)
    highest = max(int(a.edges.end.max()) for a in written)
    columns = [_columns(i, a, lowest, highest) for i, a in enumerate(accesses)]
    begin, end, owner, access, place = (np.concatenate(c) for c in zip(*columns, strict=True))
    is_written = np.array([a.spec.is_written for a in accesses])[access]
    if not may_race(begin, end, owner, is_written):
        return
    order = np.argsort(begin, kind="stable")
    first, second = find_race(begin[order], end[order], owner[order], is_written[order])
    if first >= 0:
        pair = [(accesses[access[i]], int(place[i])) for i in (order[first], order[second])]
        raise _race_error(compute_set, variables, pair)


def may_race(begin: np.ndarray, end: np.ndarray, owner: np.ndarray, is_written: np.ndarray) -> bool:
    """False if no written interval overlaps one of another owner; True: look closer.

    Few vertices read what others write: sorting the written intervals is enough for most.
    """
    order = np.flatnonzero(is_written)
    order = order[np.argsort(begin[order], kind="stable")]
    low, high = begin[order], end[order]
    if bool((low[1:] < high[:-1]).any()):
        return True
    reads = np.flatnonzero(~is_written)
    first = np.searchsorted(high, begin[reads], side="right")
    n_met = np.searchsorted(low, end[reads], side="left") - first
    met = n_met > 0
    one = order[first[met]]
    return bool((n_met[met] > 1).any() or (owner[one] != owner[reads[met]]).any())


def _accesses(compute_set: FrozenComputeSet) -> list[_Access]:
    result, first_vertex = [], 0
    for table in compute_set.tables:
        edges = (spec for spec in table.codelet.spec.fields if spec.is_edge)
        result += [_Access(table, s, first_vertex, edge_bytes(table, s)) for s in edges]
        first_vertex += table.n_rows
    return result


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
