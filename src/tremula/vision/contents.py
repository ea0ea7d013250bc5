"""The contents of a report: tables and matrices from an executable and what ran of it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tremula.compiler.compile import Analysis
from tremula.compiler.executable import Executable, StepRecord
from tremula.compiler.memory import CATEGORIES, addresses_of
from tremula.compiler.report import Execution, Report, make_report
from tremula.hardware import chip_to_toml, tile_positions
from tremula.runtime.run_log import RunRecord
from tremula.vision.contexts import Contexts
from tremula.vision.program_tree import ProgramNode, program_trees
from tremula.vision.schema import ROWS_PER_BLOCK

Ints = np.ndarray
Columns = dict[str, Sequence[object] | Ints]

# Poplar's words for steps; an own word where it has none.
_TYPES = {
    "StreamCopyIn": "StreamCopyMid", "StreamCopyOut": "StreamCopyMid",
    "RemoteRead": "StreamCopyMid", "RemoteWrite": "StreamCopyMid",
    "CrossReplicaCopy": "GlobalExchange", "CycleStamp": "Sync",
}  # fmt: skip


def execution_of(executable: Executable, given: Execution | Report | None) -> Execution:
    """What ran: as it was given, out of a forecast's report, or nothing."""
    costs = _analysis(executable).costs
    if isinstance(given, Execution):
        return given
    if isinstance(given, Report):
        steps = given.steps
        return Execution(steps.executed, given.cycles_of_chip, steps.compute, steps.is_known, {})
    n_steps, n_chips = costs.sync.shape
    nothing, chips = np.zeros(n_steps, np.int64), np.zeros(n_chips, np.int64)
    return Execution(nothing, chips, costs.compute, ~costs.needs_count, {})


def _analysis(executable: Executable) -> Analysis:
    return executable.analysis  # pyright: ignore[reportReturnType] - always one


@dataclass(frozen=True)
class Contents:
    """Everything a report file holds, table by table."""

    executable: Executable
    execution: Execution

    @cached_property
    def analysis(self) -> Analysis:
        return _analysis(self.executable)

    @cached_property
    def report(self) -> Report:
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

    # -- facts -------------------------------------------------------------------------------------

    def graph_facts(self) -> dict[str, object]:
        report = self.report
        return {
            "has_run": report.has_run,
            "total_cycles": report.total_cycles if report.has_run else 0,
            "total_seconds": report.total_seconds if report.has_run else 0.0,
            "program_names": list(report.program_names),
            "n_vertices": report.n_vertices,
            "n_edges": report.n_edges,
            "n_variables": report.n_variables,
            "n_compute_sets": report.n_compute_sets,
            "n_steps": len(self.executable.steps),
            "standing_cycles": report.standing_cycles,
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

    # -- programs and steps ------------------------------------------------------------------------

    @cached_property
    def programs(self) -> Columns:
        """Rows of all trees, parents before children."""
        rows: list[tuple] = []
        for root, name, tree in program_trees(self.executable):
            _add_node(rows, tree, -1, 0, f"{root}:{name}")
        names = ("id", "parent", "place", "kind", "name", "n_times", "step", "source", "root")
        return dict(zip(names, zip(*rows, strict=True), strict=True))

    @cached_property
    def program_of_step(self) -> Ints:
        found = np.full(len(self.executable.steps), -1, np.int64)
        step = np.array(self.programs["step"], np.int64)
        is_step = step >= 0
        found[step[is_step]] = np.array(self.programs["id"], np.int64)[is_step]
        return found

    @cached_property
    def instruction_of_step(self) -> Ints:
        found = np.full(len(self.executable.steps), -1, np.int64)
        has_step = self.executable.step_of >= 0
        found[self.executable.step_of[has_step]] = np.flatnonzero(has_step)
        return found

    def step_types(self) -> list[str]:
        links = (self.analysis.costs.link_exchange.max(axis=1) > 0).tolist()
        types = [_TYPES.get(s.kind.value, s.kind.value) for s in self.executable.steps]
        pairs = zip(types, links, strict=True)
        return ["GlobalExchange" if t == "DoExchange" and link else t for t, link in pairs]

    def steps(self, live_bytes: Ints, largest_live: Ints) -> Columns:
        """All steps; int64[n_steps] temporary bytes, of all tiles and of the fullest, are given."""
        steps, report, tiles = self.executable.steps, self.report.steps, self.step_tiles
        sync, exchange, compute = report.sync, report.exchange, report.compute
        cycles = sync + exchange + compute
        slowest = cycles.argmax(axis=1)
        at = (np.arange(len(steps)), slowest)
        names = ["/".join((*s.path, _name_of(s))) for s in steps]
        contexts = [
            self.contexts.add(name, s.source, "program")
            for name, s in zip(names, steps, strict=True)
        ]
        executed = report.executed
        return {
            "id": np.arange(len(steps)),
            "name": [s.name for s in steps],
            "kind": [s.kind.value for s in steps],
            "type": self.step_types(),
            "path": names,
            "program": self.program_of_step,
            "compute_set": [s.compute_set for s in steps],
            "debug_context": contexts,
            "source": [s.source for s in steps],
            "instruction": self.instruction_of_step,
            "executed": executed,
            "is_known": report.is_known.astype(np.int64),
            "sync": sync[at],
            "exchange": exchange[at],
            "compute": compute[at],
            "cycles": cycles[at],
            "total_cycles": cycles[at] * executed,
            "n_flops": self.analysis.costs.n_flops,
            "peak_cycles": self.analysis.costs.peak_cycles,
            "n_active_tiles": report.n_active_tiles,
            "balance": tiles.balance[at],
            "active_balance": report.balance,
            "critical_tile": tiles.critical[at],
            "bytes_in": self.data_moved[0].sum(axis=1),
            "bytes_out": self.data_moved[1].sum(axis=1),
            "temporary_bytes": live_bytes,
            "largest_temporary": largest_live,
        }

    def steps_by_ipu(self) -> Columns:
        costs, report, tiles = self.analysis.costs, self.report.steps, self.step_tiles
        n_steps, n_chips = costs.sync.shape
        received, sent = self.data_moved
        flat = {
            "sync": report.sync,
            "exchange": report.exchange,
            "link_exchange": costs.link_exchange,
            "host_exchange": costs.host_exchange,
            "compute": report.compute,
            "cycles": report.sync + report.exchange + report.compute,
            "is_active": costs.is_active.astype(np.int64),
            "joins": np.repeat(costs.joins[:, None], n_chips, axis=1).astype(np.int64),
            "active_tiles": tiles.n_active,
            "tile_balance": tiles.balance,
            "active_tile_balance": tiles.active_balance,
            "critical_tile": tiles.critical,
            "data_in": received,
            "data_out": sent,
        }
        return {
            "step_id": np.repeat(np.arange(n_steps), n_chips),
            "replica": np.zeros(n_steps * n_chips, np.int64),
            "ipu": np.tile(np.arange(n_chips), n_steps),
            **{name: column.reshape(-1) for name, column in flat.items()},
        }

    @cached_property
    def data_moved(self) -> tuple[Ints, Ints]:
        """int64[n_steps, n_chips]: bytes tiles receive and send."""
        exchanges = self.analysis.exchanges
        moved = np.zeros((2, len(exchanges.distinct) + 1, self.n_chips), np.int64)
        for row, exchange in enumerate(exchanges.distinct):
            for phase in (exchange.before, exchange.after):
                if phase is not None:
                    moved[0, row] += phase.received.reshape(self.n_chips, -1).sum(axis=1)
                    moved[1, row] += phase.sent.reshape(self.n_chips, -1).sum(axis=1)
        rows = moved[:, exchanges.row_of_step]  # row -1 is the last, empty one
        return rows[0], rows[1]

    # -- steps × tiles -----------------------------------------------------------------------------

    def compute_rows(self, steps: Ints) -> Ints:
        """int64[n, n_tiles]: compute cycles of one execution of each of some steps."""
        costs = self.analysis.costs
        rows = costs.compute_tiles[costs.tile_row[steps]]
        for at, step in enumerate(steps.tolist() if self.execution.counted else ()):
            if step in self.execution.counted:
                rows[at] = self.execution.counted[step].tile_cycles
        return rows

    def exchange_rows(self, steps: Ints) -> Ints:
        """int64[n, n_tiles]: the same of exchange, which is never longer than the chip's."""
        costs = self.analysis.costs
        of_chip = np.repeat(costs.exchange[steps], self.n_tiles // self.n_chips, axis=1)
        return np.minimum(costs.exchange_tiles[costs.tile_row[steps]], of_chip)

    @cached_property
    def step_tiles(self) -> "StepTileSummary":
        """Balance and critical tile of every step on every chip, block by block."""
        n_steps = len(self.executable.steps)
        parts = [
            _summary_of_block(
                self.compute_rows(block).reshape(len(block), self.n_chips, -1),
                self.exchange_rows(block).reshape(len(block), self.n_chips, -1),
            )
            for block in step_blocks(n_steps)
        ]
        if not parts:
            nothing = np.zeros((0, self.n_chips))
            return StepTileSummary(nothing, nothing, nothing, nothing)
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        return StepTileSummary(*columns)

    def live_blocks(self) -> Iterator[Ints]:
        """Blocks of int64[64, n_tiles]: temporary bytes at each step, buffers included."""
        live, exchanges = self.analysis.liveness, self.analysis.exchanges
        by_last = np.argsort(live.range_last, kind="stable")
        now = np.zeros(self.n_tiles, np.int64)
        first, last = 0, 0  # ranges begun, ranges ended
        begins, ends = live.range_first, live.range_last[by_last]
        start = live.tile_start
        rows: list[Ints] = []
        for step, instruction in enumerate(self.instruction_of_step.tolist()):
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

    # -- compute sets and vertices -----------------------------------------------------------------

    def compute_sets(self) -> Columns:
        sets, costs = self.executable.compute_sets, self.analysis.costs
        executed = np.zeros(len(sets), np.int64)
        used = costs.compute_set_of_step >= 0
        np.add.at(executed, costs.compute_set_of_step[used], self.execution.executed[used])
        totals = self._table_cycles()
        return {
            "id": np.arange(len(sets)),
            "name": [s.name for s in sets],
            "source": [s.source for s in sets],
            "n_vertices": [sum(t.n_rows for t in s.tables) for s in sets],
            "n_tiles": [
                len(np.unique(np.concatenate([t.tile for t in s.tables]))) if s.tables else 0
                for s in sets
            ],
            "n_flops": [
                sum(t.n_flops for t in costs.compute_sets[i].tables) for i in range(len(sets))
            ],
            "cycles": [sum(tables) * int(executed[i]) for i, tables in enumerate(totals)],
        }

    def _table_cycles(self) -> list[list[int]]:
        """Vertex cycles of one execution of each table of each compute set."""
        costs = self.analysis.costs
        found = [[max(0, table.total_cycles) for table in s.tables] for s in costs.compute_sets]
        for step, counted in self.execution.counted.items():
            number = int(costs.compute_set_of_step[step])
            for i, cycles in enumerate(counted.table_cycles):
                if cycles >= 0:
                    found[number][i] = int(cycles)
        return found

    def vertex_types(self) -> Columns:
        rows = self.report.vertex_types
        state = self.report.memory.vertices.bytes_of_type
        return {
            "id": np.arange(len(rows)),
            "name": [r.codelet for r in rows],
            "n_vertices": [r.n_vertices for r in rows],
            "cycles": [r.cycles for r in rows],
            "standing": [r.standing for r in rows],
            "code_bytes": [r.n_code_bytes for r in rows],
            "state_bytes": [state.get(r.codelet, 0) for r in rows],
        }

    def vertices(self) -> tuple[Columns, dict[str, Ints]]:
        """Rows per table, and a CSR of how many vertices each has on which tile."""
        number_of_type = {r.codelet: i for i, r in enumerate(self.report.vertex_types)}
        costs, totals = self.analysis.costs, self._table_cycles()
        rows, tiles, counts = [], [], []
        for number, compute_set in enumerate(self.executable.compute_sets):
            for i, table in enumerate(compute_set.tables):
                name = self.executable.codelets[table.codelet].spec.name
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

    # -- variables ---------------------------------------------------------------------------------

    def variables(self) -> Columns:
        records, live = self.executable.variables, self.analysis.liveness
        n = len(records.names)
        owner = np.repeat(np.arange(n), np.diff(live.tile_start))
        largest = np.zeros(n, np.int64)
        np.maximum.at(largest, owner, live.tile_bytes)
        first, last = self._step_ranges(n)
        contexts = [
            self.contexts.add(name, source, "variable")
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

    def _step_ranges(self, n: int) -> tuple[Ints, Ints]:
        """int64[n_variables]: first and last step at which a temporary variable lives, else -1."""
        live, at = self.analysis.liveness, self.instruction_of_step
        first, last = np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64)
        np.minimum.at(first, live.range_variable, np.searchsorted(at, live.range_first))
        np.maximum.at(
            last, live.range_variable, np.searchsorted(at, live.range_last, side="right") - 1
        )
        first[last < 0] = -1
        return first, last

    def variable_columns(self) -> dict[str, Ints]:
        live = self.analysis.liveness
        return {
            "variable.tile_start": live.tile_start,
            "variable.tile": live.tile,
            "variable.tile_bytes": live.tile_bytes,
            "variable.always_live": live.always_live.astype(np.int64),
            "live.variable": live.range_variable,
            "live.first": live.range_first,
            "live.last": live.range_last,
        }

    def tile_variables(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The same by tile: where each tile's entries start, variables, bytes, addresses."""
        live = self.analysis.liveness
        owner = np.repeat(np.arange(len(live.tile_start) - 1), np.diff(live.tile_start))
        # Sorting small unsigned numbers is linear.
        order = np.argsort(live.tile.astype(np.uint16 if self.n_tiles < 65_536 else np.uint32),
                           kind="stable")  # fmt: skip
        start = np.searchsorted(live.tile[order], np.arange(self.n_tiles + 1))
        address = addresses_of(self.analysis.memory, live, self.executable.target.chip)
        return start, owner[order], live.tile_bytes[order], address[order]

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
        costs, ran = self.analysis.costs, self.execution
        takes_part = (costs.is_active | costs.joins[:, None]) * ran.executed[:, None]
        sums = [
            (part * takes_part).sum(axis=0) for part in (ran.compute, costs.exchange, costs.sync)
        ]
        return {
            "replica": np.zeros(self.n_chips, np.int64),
            "ipu": np.arange(self.n_chips),
            "cycles": ran.cycles_of_chip,
            "compute": sums[0],
            "exchange": sums[1],
            "sync": sums[2],
            "waiting": ran.cycles_of_chip - sum(sums),
        }

    def categories(self) -> Columns:
        memory = self.report.memory
        return {
            "id": np.arange(len(CATEGORIES)),
            "name": CATEGORIES,
            "always_live": memory.always_live.sum(axis=1),
            "temporary": memory.temporary.sum(axis=1),
        }


@dataclass(frozen=True, slots=True)
class StepTileSummary:
    """Of each step on each chip, [n_steps, n_chips]."""

    n_active: Ints
    balance: Ints  # mean ÷ largest compute of all tiles
    active_balance: Ints  # of tiles that compute
    critical: Ints  # the tile that is busy longest, numbered through all chips; -1 for none


def step_blocks(n_steps: int) -> Iterator[Ints]:
    for first in range(0, n_steps, ROWS_PER_BLOCK):
        yield np.arange(first, min(n_steps, first + ROWS_PER_BLOCK))


def _name_of(step: StepRecord) -> str:
    """A step's name; a copy without one is called by the stream, buffer or function it uses."""
    handle = step.detail.get("handle") if isinstance(step.detail, dict) else None
    return f"{step.name} {handle}" if handle and step.name in ("Copy", "Call") else step.name


def _summary_of_block(compute: Ints, exchange: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Of int64[n, n_chips, n_tiles] cycles."""
    n_active = (compute > 0).sum(axis=2)
    largest, total = compute.max(axis=2), compute.sum(axis=2)
    most = np.maximum(largest, 1)
    balance = np.where(largest > 0, total / (most * compute.shape[2]), 1.0)
    active = np.where(largest > 0, total / (most * np.maximum(n_active, 1)), 1.0)
    busy = compute + exchange
    first_tile = np.arange(compute.shape[1]) * compute.shape[2]
    critical = np.where(busy.max(axis=2) > 0, busy.argmax(axis=2) + first_tile, -1)
    return n_active, balance, active, critical


def runs_columns(runs: Sequence[RunRecord], first_entry: Ints, n_entries: Ints) -> Columns:
    return {
        "id": np.arange(len(runs)),
        "program": [r.program for r in runs],
        "name": [r.name for r in runs],
        "first_entry": first_entry,
        "n_entries": n_entries,
        "cycles_from": [r.cycles_from for r in runs],
        "cycles_to": [r.cycles_to for r in runs],
        "host_start_us": [r.host_start_us for r in runs],
        "host_end_us": [r.host_end_us for r in runs],
    }


def _add_node(rows: list[tuple], node: ProgramNode, parent: int, place: int, root: str) -> None:
    waiting = [(node, parent, place)]
    while waiting:
        node, parent, place = waiting.pop()
        number = len(rows)
        rows.append(
            (
                number,
                parent,
                place,
                node.kind,
                node.name,
                node.n_times,
                node.step,
                node.source,
                root,
            )
        )
        waiting += [(child, number, i) for i, child in reversed(list(enumerate(node.children)))]
