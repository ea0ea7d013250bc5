"""Cycles of vertices: from the user, a registered estimator, or the codelet; then per tile."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tremula.base.errors import MissingPerfEstimate
from tremula.base.provenance import Provenance
from tremula.base.types import QUARTER
from tremula.codelets.spec import (
    CostInput,
    CostView,
    FieldKind,
    FieldSpec,
    VertexBase,
)
from tremula.compiler.file.codec import record
from tremula.compiler.passes.intervals import source_of_row, sum_per_tile
from tremula.compiler.passes.sweeps import deal_to_workers
from tremula.compiler.program_ir import FrozenComputeSet, FrozenGraph
from tremula.hardware import Chip
from tremula.poplar.vertices.columns import EdgeColumn, FrozenTable

PROVENANCES = tuple(Provenance)
COUNTED = -1  # in a column of cycles: known only after counting
Ints = np.ndarray
Estimator = Callable[[CostView, Chip], object]


@record
@dataclass(frozen=True, slots=True)
class TableCost:
    """The cost of one vertex table.

    `cycles` has a row per vertex, COUNTED where only a run shows it; it is empty if nothing has
    to be counted: `total_cycles` and the tile columns then say it all. Worker cycles if
    `is_worker`, else tile cycles.
    """

    codelet: str
    n_rows: int
    is_worker: bool
    total_cycles: int
    n_flops: int
    provenance_cycles: Ints  # int64[5], in the order of PROVENANCES
    cycles: Ints
    peak_cycles: int  # tile cycles that its flops take at the peak of their unit


@record
@dataclass(frozen=True, slots=True)
class ComputeSetCost:
    """Compute of one compute set: int64[n_tiles] columns, copies on the tile included.

    `busy_cycles` leaves out idle workers: the sum of all vertices' worker cycles. Of a set that
    `needs_count`, the columns hold the copies alone.
    """

    tables: tuple[TableCost, ...]
    tile_cycles: Ints
    busy_cycles: Ints
    needs_count: bool


def further_on(cost: ComputeSetCost, n_tiles: int) -> ComputeSetCost:
    """The cost of the same compute set on another chip, its tiles numbered higher by n_tiles."""
    tiles, busy = (np.roll(c, n_tiles) for c in (cost.tile_cycles, cost.busy_cycles))
    return replace(cost, tile_cycles=tiles, busy_cycles=busy)


def cost_compute_set(
    compute_set: FrozenComputeSet, graph: FrozenGraph, copy_cycles: Ints
) -> ComputeSetCost:
    """The cost of a compute set, `copy_cycles` int64[n_tiles] being those of inserted copies."""
    chip = graph.target.chip
    result = [cost_table(table, chip, graph.perf_estimators) for table in compute_set.tables]
    needs_count = any(cost.total_cycles == COUNTED for cost in result)
    if needs_count:
        return ComputeSetCost(tuple(result), copy_cycles, copy_cycles, True)
    tile_cycles, busy = tiles_of_vertices(
        [cost.is_worker for cost in result],
        [table.tile for table in compute_set.tables],
        [cost.cycles for cost in result],
        chip.n_workers,
        graph.target.n_tiles,
    )
    return ComputeSetCost(
        tuple(_without_rows(cost) for cost in result),
        tile_cycles + copy_cycles,
        busy + copy_cycles,
        False,
    )


def tiles_of_vertices(
    is_worker: Sequence[bool],
    tiles: Sequence[Ints],
    cycles: Sequence[Ints],
    n_workers: int,
    n_tiles: int,
) -> tuple[Ints, Ints]:
    """(tile cycles, cycles without idle workers), int64[n_tiles] each, of a set's tables.

    Vertices go in order to the least loaded worker of their tile. A worker issues every
    n_workers-th cycle, so a tile takes n_workers times its busiest worker. Other vertices have the
    tile to themselves.
    """
    workers = np.zeros((n_tiles, n_workers), np.int64)
    alone = np.zeros(n_tiles, np.int64)
    for worker, tile, table_cycles in zip(is_worker, tiles, cycles, strict=True):
        if worker:
            deal_to_workers(tile, np.asarray(table_cycles, np.int64), workers)
        else:
            alone += sum_per_tile(tile, table_cycles, n_tiles)
    return workers.max(axis=1) * n_workers + alone, workers.sum(axis=1) + alone


def _without_rows(cost: TableCost) -> TableCost:
    return replace(cost, cycles=np.empty(0, np.int64))


def cost_table(table: FrozenTable, chip: Chip, estimators: Mapping[str, Estimator]) -> TableCost:
    """The cost of one vertex table, row by row."""
    cycles, flops = np.full(table.n_rows, COUNTED, np.int64), np.zeros(table.n_rows, np.int64)
    is_users = np.zeros(table.n_rows, bool)
    if table.estimate_cycles is not None:
        is_users = table.estimate_cycles >= 0
        cycles[is_users] = table.estimate_cycles[is_users]
        if table.estimate_flops is not None:
            flops[is_users] = table.estimate_flops[is_users]
    provenance = table.codelet.provenance
    if not is_users.all():
        own, own_flops, provenance = _own_cycles(table, chip, estimators)
        if own is not None:
            cycles[~is_users] = own[~is_users]
        if own_flops is not None:
            flops[~is_users] = own_flops[~is_users]
    spec, n_flops = table.codelet.spec, int(flops.sum())
    is_counted = bool((cycles == COUNTED).any())
    shares = np.zeros(len(PROVENANCES), np.int64)
    shares[PROVENANCES.index(Provenance.YOURS)] += int(cycles[is_users].sum())
    shares[PROVENANCES.index(provenance)] += 0 if is_counted else int(cycles[~is_users].sum())
    return TableCost(
        spec.name,
        table.n_rows,
        spec.base is VertexBase.VERTEX,
        COUNTED if is_counted else int(cycles.sum()),
        n_flops,
        shares,
        cycles,
        -(-n_flops // table.codelet.peak_flops_per_cycle(chip)),
    )


def _own_cycles(
    table: FrozenTable, chip: Chip, estimators: Mapping[str, Estimator]
) -> tuple[Ints | None, Ints | None, Provenance]:
    """(cycles, flops, provenance) from an estimator or the codelet; None must be counted."""
    codelet, inputs = table.codelet, cost_input(table, chip)
    flops = codelet.flops(inputs)
    estimator = estimators.get(codelet.spec.name)
    if estimator is not None:
        cycles = estimator(CostView(inputs), chip)
        if isinstance(cycles, tuple):
            cycles, estimated = cycles
            flops = _checked(table, estimated, "flops")
        return _checked(table, cycles, "its registered estimator"), flops, Provenance.YOURS
    if codelet.is_data_dependent:
        return None, flops, codelet.provenance
    return _checked(table, codelet.cycles(inputs), "its cycles method"), flops, codelet.provenance


def _checked(table: FrozenTable, estimate: object, origin: str) -> Ints:
    """int64[n] cycles, or the error of a vertex without a cost."""
    values = np.asarray(estimate)
    is_number = values.dtype.kind in "iuf" and values.shape in ((), (table.n_rows,))
    bad = 0
    if is_number:
        values = np.ceil(np.broadcast_to(values, (table.n_rows,)))
        wrong = np.flatnonzero(~(values >= 0))
        if not len(wrong):
            return values.astype(np.int64)
        bad = int(wrong[0])
    got = f"{values.dtype} of shape {values.shape}"
    if is_number:
        got = f"{values[bad]} for vertex {bad}"
    raise MissingPerfEstimate(
        f"codelet {table.codelet.spec.name} has no cost: {origin} gave {got}, expected one number "
        f"of 0 or more for each of {table.n_rows} vertices.",
        source=source_of_row(table, bad) if table.n_rows else None,
        hint="return whole cycles per vertex, or call graph.set_perf_estimate(vertex, cycles)",
    )


def cost_input(table: FrozenTable, chip: Chip) -> CostInput:
    """What a cost method sees of a table: sizes, state and kernel columns without addresses."""
    sizes: dict[str, Ints] = {}
    n_subs: dict[str, Ints] = {}
    state: dict[str, Ints] = {}
    columns: list[Ints] = []
    for spec in table.codelet.spec.fields:
        if spec.is_edge:
            edge = table.edges[spec.name]
            sizes[spec.name] = edge.row_lengths()
            if spec.kind in (FieldKind.VECTOR_LIST, FieldKind.SCALAR_LIST):
                n_subs[spec.name] = np.diff(edge.sub_start)
            columns += _edge_columns(spec, edge)
        else:
            column = table.states[spec.name]
            state[spec.name] = column.value
            if column.start is not None:
                sizes[spec.name] = np.diff(column.start)
                columns.append(column.start)
            columns.append(column.value)
    return CostInput(table.n_rows, sizes, n_subs, state, chip, tuple(columns))


def _edge_columns(spec: FieldSpec, edge: EdgeColumn) -> list[Ints]:
    """The ABI's columns of an edge; addresses are zero, since a cost cannot depend on them."""
    length = np.ascontiguousarray(edge.sub_lengths(), np.int64)
    offset = np.zeros(len(length), np.int64)
    columns = {
        FieldKind.SCALAR: [offset],
        FieldKind.VECTOR: [offset, length],
        FieldKind.VECTOR_LIST: [edge.sub_start, offset, length],
        FieldKind.SCALAR_LIST: [edge.sub_start, offset],
    }[spec.kind]
    if spec.type == QUARTER:
        columns.append(np.zeros(edge.n_rows, np.int64))
    return [np.ascontiguousarray(column, np.int64) for column in columns]
