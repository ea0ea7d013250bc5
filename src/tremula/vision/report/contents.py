"""The contents of a report, table by table; `steps.py` makes the largest one."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tremula.compiler.executable.executable import Analysis, Executable
from tremula.compiler.executable.records import TableRecord
from tremula.compiler.passes.liveness import LiveRanges
from tremula.compiler.passes.memory import CATEGORIES, addresses_of
from tremula.compiler.report.phases import PHASES
from tremula.compiler.report.report import ExecutedSteps, ProgramReport, StepHistory, make_report
from tremula.hardware import chip_to_toml, tile_positions
from tremula.vision.report.control_flow import ProgramRows
from tremula.vision.report.schema import ROWS_PER_BLOCK
from tremula.vision.report.timeline.measure import Measured, measure
from tremula.vision.report.timeline.overview import Overview, overview_of, stored_pool
from tremula.vision.report.timeline.script import CallContext, Regions, Routes, routes_of
from tremula.vision.report.timeline.timeline import Timeline, timeline_of
from tremula.vision.report.timeline.walk import CYCLES_FROM, CYCLES_TO, FIRST_ENTRY, N_ENTRIES

Ints = np.ndarray
N_BUSIEST_LINKS = 16
Columns = dict[str, Sequence[object] | Ints]


class Contexts:
    """The tree of names, each with its source line: "encoder/layer1/matmul" makes three rows."""

    def __init__(self) -> None:
        self.number_of: dict[str, int] = {}
        self.parent: list[int] = []
        self.name: list[str] = []
        self.layer: list[str] = []
        self.file: list[str] = []
        self.line: list[int] = []

    def add(self, path: str, source: str, layer: str) -> int:
        """The row of a name, which keeps the source line it was first added with."""
        known = self.number_of.get(path)
        if known is not None:
            return known
        above, _, name = path.rpartition("/")
        parent = self.add(above, source, layer) if above else -1
        file, _, line = source.rpartition(":")
        self.parent.append(parent)
        self.name.append(name)
        self.layer.append(layer)
        self.file.append(file if line.isdigit() else source)
        self.line.append(int(line) if line.isdigit() else 0)
        self.number_of[path] = len(self.parent) - 1
        return len(self.parent) - 1

    def columns(self) -> dict[str, list]:
        return {
            "id": list(range(len(self.parent))),
            "parent": self.parent,
            "name": self.name,
            "path": list(self.number_of),
            "layer": self.layer,
            "file": self.file,
            "line": self.line,
        }


def execution_of(
    executable: Executable, source: ExecutedSteps | ProgramReport | None
) -> ExecutedSteps:
    """What ran: an execution as given, one taken from a forecast's report, or nothing."""
    costs = executable.analysis.costs
    if isinstance(source, ExecutedSteps):
        return source
    if isinstance(source, ProgramReport) and source.ran is not None:
        return source.ran
    n_steps, n_chips = costs.sync.shape
    nothing, chips = np.zeros(n_steps, np.int64), np.zeros(n_chips, np.int64)
    return ExecutedSteps(nothing, chips, costs.compute, ~costs.needs_count, {})


@dataclass(frozen=True)
class Contents:
    """Everything a report file holds, table by table."""

    executable: Executable
    execution: ExecutedSteps

    @cached_property
    def _routes(self) -> tuple[Routes, Regions, list[CallContext]]:
        return routes_of(self.executable)

    @property
    def routes(self) -> Routes:
        return self._routes[0]

    @cached_property
    def live(self) -> LiveRanges:
        """What is live: of functions, in the call that needs most."""
        return self.analysis.liveness.in_fullest_calls()

    def steps_of_context(self, context: int) -> tuple[int, int]:
        """The first step of a program or function, and the one after its last."""
        _, regions, contexts = self._routes
        return regions.steps[contexts[context].region]

    @cached_property
    def measured(self) -> Measured:
        """Cycles, split in every way the report shows."""
        return measure(self.routes, self.analysis.costs, self.execution)

    @cached_property
    def history(self) -> StepHistory:
        return self.execution.history or StepHistory((), np.zeros(0, np.int64))

    @cached_property
    def timeline(self) -> Timeline:
        """What ran when."""
        return timeline_of(self.measured.script, self.history)

    @cached_property
    def overview(self) -> Overview:
        return overview_of(self.timeline, self.measured.phases)

    @property
    def chip_of_stage(self) -> Ints:
        """int64[n_stages]: the chip that does most of each."""
        busy, columns = self.measured.busy.sum(axis=2), self.routes.columns
        result = np.zeros((self.routes.n_stages, self.n_chips), np.int64)
        for context in np.flatnonzero(columns["stage_of_context"] >= 0).tolist():
            steps = slice(*self.steps_of_context(context))
            result[columns["stage_of_context"][context]] += busy[steps].sum(axis=0)
        return result.argmax(axis=1)

    @cached_property
    def programs(self) -> Columns:
        """Rows of the program trees, with what is on the critical path."""
        return self._program_rows.columns(self.measured.of_place)

    @property
    def busy_of_programs(self) -> Ints:
        """int64[n_nodes, 5]: what all chips spend on everything in a node, all together."""
        return self._program_rows.sums(self.measured.busy_of_place)

    @cached_property
    def _program_rows(self) -> ProgramRows:
        return ProgramRows(self.executable, *self._routes)

    @property
    def cycles_of_stages(self) -> Ints:
        """int64[n_stages, 2, 5]: phases on the critical path, and of all chips together.

        By place: a function that two stages call counts for each with what it took there.
        """
        columns = self.routes.columns
        result = np.zeros((self.routes.n_stages, 2, len(PHASES)), np.int64)
        for context in np.flatnonzero(columns["stage_of_context"] >= 0).tolist():
            first, last = self.steps_of_context(context)
            places = slice(*(columns["base"][context] + np.array([first, last])))
            of_stage = result[columns["stage_of_context"][context]]
            of_stage[0] += self.measured.of_place[places].sum(axis=0)
            of_stage[1] += self.measured.busy_of_place[places].sum(axis=0)
        return result

    @cached_property
    def analysis(self) -> Analysis:
        return self.executable.analysis

    @cached_property
    def report(self) -> ProgramReport:
        return make_report(self.executable, self.execution)

    @cached_property
    def contexts(self) -> Contexts:
        return Contexts()

    @property
    def n_chips(self) -> int:
        return self.executable.target.n_ipus

    @property
    def n_tiles(self) -> int:
        return self.executable.target.n_tiles

    @cached_property
    def instruction_of_step(self) -> Ints:
        result = np.full(len(self.executable.steps), -1, np.int64)
        has_step = self.executable.step_of >= 0
        result[self.executable.step_of[has_step]] = np.flatnonzero(has_step)
        return result

    # -- facts -------------------------------------------------------------------------------------

    def graph_facts(self) -> dict[str, object]:
        report, routes = self.report, self.routes
        return {
            "n_entries": self.timeline.n_entries,
            "n_executions": int(self.execution.executed.sum()),
            "is_folded": self.timeline.is_folded,
            "estimated_cycles": self.measured.estimated,
            "overview_pool": self.overview.pool,
            "stored_pool": self.overview.pool * stored_pool(len(self.overview.begin)),
            "timeline": {
                "n_slots": routes.n_slots,
                "n_stages": routes.n_stages,
                "n_places": routes.n_places,
                "counts_steps": self.history.counts_steps,
            },
            "has_run": report.has_run,
            "total_cycles": report.total_cycles if report.has_run else 0,
            "total_seconds": report.total_seconds if report.has_run else 0.0,
            "joules": report.energy.total,
            "cycles_by_family": report.cycles_by_family,
            "busiest_links": [
                {
                    "name": report.links.name[i],
                    "n_bytes": int(report.links.n_bytes[i]),
                    "busy_seconds": float(report.links.busy_seconds[i]),
                }
                for i in range(min(len(report.links), N_BUSIEST_LINKS))
            ],
            "program_names": list(report.program_names),
            "n_vertices": report.n_vertices,
            "n_edges": report.n_edges,
            "n_variables": report.n_variables,
            "n_compute_sets": report.n_compute_sets,
            "n_steps": len(self.executable.steps),
            "standing_cycles": report.provenance_cycles,
            "available_bytes": report.memory.available_bytes,
        }

    def target_facts(self) -> dict[str, object]:
        target, chip = self.executable.target, self.executable.target.chip
        return {
            "chip": chip.name,
            "arch": chip.arch,
            "type": target.type.value,
            "system": self.executable.machine.system_name,
            "n_ipus": target.n_ipus,
            "tiles_per_ipu": target.tiles_per_ipu,
            "n_tiles": target.n_tiles,
            "n_replicas": self.executable.replication_factor,
            "n_bytes_per_tile": chip.n_bytes_per_tile,
            "available_bytes_per_tile": chip.n_bytes_available_per_tile,
            "n_workers": chip.n_workers,
            "clock_hz": chip.clock_hz,
            "sync_cycles": chip.sync_cycles,
            "exchange_bytes_per_cycle": chip.exchange_bytes_per_cycle,
            "flops_per_cycle_half": chip.flops_per_cycle_half_half,
            "flops_per_cycle_half_float": chip.flops_per_cycle_half_float,
            "flops_per_cycle_float": chip.flops_per_cycle_float_float,
            "flops_per_cycle_vector_half": chip.flops_per_cycle_vector_half,
            "flops_per_cycle_vector_float": chip.flops_per_cycle_vector_float,
            "chip_toml": chip_to_toml(chip),
        }

    # -- tiles, chips, categories ------------------------------------------------------------------

    def tiles(self) -> Columns:
        target, memory, tiles = self.executable.target, self.report.memory, self.report.tiles
        x, y = tile_positions(target.chip)
        on_chip = np.arange(self.n_tiles) % target.tiles_per_ipu
        peak = memory.peak_at
        step_of = np.append(self.executable.step_of, -1)
        return {
            "replica": np.zeros(self.n_tiles, np.int64),
            "ipu": np.arange(self.n_tiles) // target.tiles_per_ipu,
            "tile": np.arange(self.n_tiles),
            "x_mm": x[on_chip],
            "y_mm": y[on_chip],
            "always_live": tiles.n_bytes_always_live,
            "temporary": tiles.n_bytes_temporary,
            "excluding_gaps": memory.excluding_gaps,
            "including_gaps": memory.including_gaps,
            "region0": memory.placement.region0,
            "region1": memory.placement.region1,
            "overflowed": memory.placement.overflowed,
            "peak_instruction": peak,
            "peak_step": step_of[peak],
            "compute": tiles.compute,
            "busy": tiles.busy,
            "exchange": tiles.exchange,
        }

    def ipus(self) -> Columns:
        of_chip = self.measured.of_chip
        return {
            "replica": np.zeros(self.n_chips, np.int64),
            "ipu": np.arange(self.n_chips),
            "cycles": self.execution.cycles_of_chip,
            **{name: of_chip[:, i] for i, name in enumerate(PHASES)},
            "waiting": self.measured.waiting,
        }

    def categories(self) -> Columns:
        memory = self.report.memory
        return {
            "id": np.arange(len(CATEGORIES)),
            "name": CATEGORIES,
            "always_live": memory.always_live.sum(axis=1),
            "temporary": memory.temporary.sum(axis=1),
        }


def runs_columns(contents: Contents) -> Columns:
    walked = contents.timeline.runs
    runs, names = contents.history.runs[: len(walked)], contents.executable.names
    return {
        "id": np.arange(len(runs)),
        "program": [r.program for r in runs],
        "name": [names[r.program] for r in runs],
        "first_entry": walked[:, FIRST_ENTRY],
        "n_entries": walked[:, N_ENTRIES],
        "times": [r.times for r in runs],
        "cycles_from": walked[:, CYCLES_FROM],
        "cycles_to": walked[:, CYCLES_TO],
        "host_start_us": [r.host_start_us for r in runs],
        "host_end_us": [r.host_end_us for r in runs],
    }


# -- compute sets, vertex types, vertices ----------------------------------------------------------


def compute_sets(contents: Contents) -> Columns:
    sets, costs = contents.executable.compute_sets, contents.analysis.costs
    executed = np.zeros(len(sets), np.int64)
    used = costs.compute_set_of_step >= 0
    np.add.at(executed, costs.compute_set_of_step[used], contents.execution.executed[used])
    on_path = np.zeros(len(sets), np.int64)
    of_step = contents.measured.of_step.sum(axis=(1, 2))
    np.add.at(on_path, costs.compute_set_of_step[used], of_step[used])
    totals = _table_cycles(contents)
    return {
        "id": np.arange(len(sets)),
        "name": [s.name for s in sets],
        "source": [s.source for s in sets],
        "n_vertices": [sum(t.n_rows for t in s.tables) for s in sets],
        "n_tiles": [int(np.count_nonzero(np.bincount(_tiles_of(s.tables)))) for s in sets],
        "n_flops": [sum(t.n_flops for t in costs.compute_sets[i].tables) for i in range(len(sets))],
        "cycles": [sum(tables) * int(executed[i]) for i, tables in enumerate(totals)],
        "path_cycles": on_path,
    }


def _tiles_of(tables: Sequence[TableRecord]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *(table.tile for table in tables)])


def _table_cycles(contents: Contents) -> list[list[int]]:
    """Vertex cycles of one execution of each table of each compute set."""
    costs = contents.analysis.costs
    result = [[max(0, table.total_cycles) for table in s.tables] for s in costs.compute_sets]
    for step, counted in contents.execution.counted.items():
        number = int(costs.compute_set_of_step[step])
        for i, cycles in enumerate(counted.table_cycles):
            if cycles >= 0:
                result[number][i] = int(cycles)
    return result


def vertex_types(contents: Contents) -> Columns:
    rows = contents.report.vertex_types
    state = contents.report.memory.vertices.bytes_of_type
    return {
        "id": np.arange(len(rows)),
        "name": [r.codelet for r in rows],
        "n_vertices": [r.n_vertices for r in rows],
        "cycles": [r.cycles for r in rows],
        "standing": [r.provenance for r in rows],
        "code_bytes": [r.n_code_bytes for r in rows],
        "state_bytes": [state.get(r.codelet, 0) for r in rows],
    }


def vertices(contents: Contents) -> tuple[Columns, dict[str, Ints]]:
    """One row per vertex table, and a CSR of its vertex counts by tile."""
    number_of_type = {r.codelet: i for i, r in enumerate(contents.report.vertex_types)}
    costs, totals = contents.analysis.costs, _table_cycles(contents)
    rows, tiles, counts = [], [], []
    for number, compute_set in enumerate(contents.executable.compute_sets):
        for i, table in enumerate(compute_set.tables):
            name = contents.executable.codelets[table.codelet].spec.name
            flops = costs.compute_sets[number].tables[i].n_flops
            row = (number, number_of_type[name], table.n_rows, flops, totals[number][i])
            rows.append((len(rows), *row))
            tile, count = np.unique(table.tile, return_counts=True)
            tiles.append(tile)
            counts.append(count)
    names = ("id", "compute_set", "vertex_type", "n_vertices", "n_flops", "cycles")
    columns: Columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    nothing = np.empty(0, np.int64)
    start = np.cumsum([0, *(len(t) for t in tiles)])
    csr = {
        "vertices.start": start.astype(np.int64),
        "vertices.tile": np.concatenate([nothing, *tiles]),
        "vertices.count": np.concatenate([nothing, *counts]),
    }
    return columns, csr


# -- variables: sizes, tiles, addresses, lifetimes -------------------------------------------------


def variables(contents: Contents) -> Columns:
    records, live = contents.executable.variables, contents.analysis.liveness
    n = len(records.names)
    owner = np.repeat(np.arange(n), np.diff(live.tile_start))
    largest = np.zeros(n, np.int64)
    np.maximum.at(largest, owner, live.tile_bytes)
    first, last = _step_ranges(contents, n)
    contexts = [
        contents.contexts.add(name, source, "variable")
        for name, source in zip(records.names, records.sources, strict=True)
    ]
    return {
        "id": np.arange(n),
        "name": records.names,
        "type": records.type_names,
        "shape": [json.dumps(list(shape)) for shape in records.shapes],
        "n_bytes": np.bincount(owner, live.tile_bytes, n).astype(np.int64),
        "n_elements": [int(np.prod(shape, dtype=np.int64)) for shape in records.shapes],
        "n_tiles": np.diff(live.tile_start),
        "largest_on_tile": largest,
        "is_constant": records.is_constant.astype(np.int64),
        "always_live": live.always_live.astype(np.int64),
        "is_used": live.is_used.astype(np.int64),
        "first_step": first,
        "last_step": last,
        "debug_context": contexts,
        "source": records.sources,
    }


def _step_ranges(contents: Contents, n: int) -> tuple[Ints, Ints]:
    """int64[n_variables]: first and last step at which a temporary variable is live, else -1."""
    live, at = contents.live, contents.instruction_of_step
    first, last = np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64)
    np.minimum.at(first, live.range_variable, np.searchsorted(at, live.range_first))
    np.maximum.at(last, live.range_variable, np.searchsorted(at, live.range_last, side="right") - 1)
    first[last < 0] = -1
    return first, last


def variable_columns(contents: Contents) -> dict[str, Ints]:
    live = contents.live
    return {
        "variable.tile_start": live.tile_start,
        "variable.tile": live.tile,
        "variable.tile_bytes": live.tile_bytes,
        "variable.always_live": live.always_live.astype(np.int64),
        "live.variable": live.range_variable,
        "live.first": live.range_first,
        "live.last": live.range_last,
    }


def tile_variables(contents: Contents) -> tuple[Ints, Ints, Ints, Ints]:
    """Variables by tile: where each tile's entries start, variables, bytes, addresses."""
    live = contents.analysis.liveness
    owner = np.repeat(np.arange(len(live.tile_start) - 1), np.diff(live.tile_start))
    # Sorting small unsigned numbers is linear.
    order = np.argsort(live.tile.astype(np.uint16 if contents.n_tiles < 65_536 else np.uint32),
                       kind="stable")  # fmt: skip
    start = np.searchsorted(live.tile[order], np.arange(contents.n_tiles + 1))
    address = addresses_of(contents.analysis.memory, live, contents.executable.target.chip)
    return start, owner[order], live.tile_bytes[order], address[order]


def live_blocks(contents: Contents) -> Iterator[Ints]:
    """Blocks of int64[64, n_tiles]: temporary bytes at each step, buffers included."""
    live, exchanges = contents.live, contents.analysis.exchanges
    by_last = np.argsort(live.range_last, kind="stable")
    now = np.zeros(contents.n_tiles, np.int64)
    first, last = 0, 0  # how many ranges have begun, and ended
    begins, ends = live.range_first, live.range_last[by_last]
    start = live.tile_start
    rows: list[Ints] = []
    for step, instruction in enumerate(contents.instruction_of_step.tolist()):
        n_begun = np.searchsorted(begins, instruction, side="right")
        n_ended = np.searchsorted(ends, instruction, side="left")
        for v in live.range_variable[first:n_begun].tolist():
            now[live.tile[start[v] : start[v + 1]]] += live.tile_bytes[start[v] : start[v + 1]]
        for v in live.range_variable[by_last[last:n_ended]].tolist():
            now[live.tile[start[v] : start[v + 1]]] -= live.tile_bytes[start[v] : start[v + 1]]
        first, last = int(n_begun), int(n_ended)
        buffers = exchanges.of_step(step).buffer_bytes
        rows.append(now.copy() if buffers is None else now + buffers)
        if len(rows) == ROWS_PER_BLOCK:
            yield np.stack(rows)
            rows = []
    if rows:
        yield np.stack(rows)
