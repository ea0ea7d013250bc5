"""A program's report: columns of all that is known about it; memory and cycles by step and tile."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tremula.base.errors import MissingPerfEstimate, MissingProfileData
from tremula.base.lazy import vision
from tremula.codelets.columns import columns_of
from tremula.codelets.spec import Codelet
from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.cost import StepCosts
from tremula.compiler.passes.memory import CATEGORIES, TileMemoryTable
from tremula.compiler.passes.vertex_costs import PROVENANCES
from tremula.compiler.program_ir import StepKind
from tremula.compiler.report.energy import Energy, energy_of
from tremula.compiler.report.intervals import cycle_interval, cycles_by_family
from tremula.compiler.report.links import LinkColumns, link_columns
from tremula.compiler.report.phases import step_phases
from tremula.hardware import Chip
from tremula.poplar.target import Target

Ints = np.ndarray


@dataclass(frozen=True, slots=True)
class CountedStep:
    """A compute step whose cycles were counted each time it ran: sums over all executions."""

    n_times: int
    total_chip_cycles: Ints  # int64[n_chips]
    total_tile_cycles: Ints  # int64[n_tiles]
    total_busy_cycles: Ints  # the same without idle workers
    # Of each vertex table: cycles of vertices that had to be counted; -1 if none had to be.
    total_table_cycles: tuple[int, ...]

    @property
    def chip_cycles(self) -> Ints:
        """Of one execution, on average."""
        return self.total_chip_cycles // self.n_times

    @property
    def tile_cycles(self) -> Ints:
        """Of one execution, on average."""
        return self.total_tile_cycles // self.n_times

    @property
    def table_cycles(self) -> tuple[int, ...]:
        """Of one execution, on average."""
        return tuple(n if n < 0 else n // self.n_times for n in self.total_table_cycles)


@dataclass(frozen=True, slots=True)
class RunTaken:
    """A run of a program, or several that were alike, one after another."""

    program: int
    n_steps: int  # executions of steps, of one run
    n_events: int  # branches that data decided, and cycles of counted steps, of one run
    times: int = 1
    is_whole: bool = True  # False: not all events were recorded
    is_done: bool = True  # False: an error ended it
    host_start_us: int = 0
    host_end_us: int = 0


@dataclass(frozen=True, slots=True)
class StepHistory:
    """In which order steps ran: with the instructions, this is enough to run the clock again.

    An event of a branch is the instruction it went to, of a counted step its compute cycles on each
    chip.
    """

    runs: tuple[RunTaken, ...]
    events: Ints  # int64[n]
    counts_steps: bool = True  # False: costs of all steps are taken as known


@dataclass(frozen=True, slots=True)
class ExecutedSteps:
    """What ran since load: how often each step ran, and what it took."""

    executed: Ints  # int64[n_steps]
    cycles_of_chip: Ints  # int64[n_chips]
    compute: Ints  # int64[n_steps, n_chips]: of one execution, of counted steps on average
    is_counted: Ints  # bool[n_steps]: the compute cycles are known
    counted: dict[int, CountedStep]  # by step
    history: StepHistory | None = None  # None: in which order is not known


@dataclass(frozen=True, slots=True)
class StepColumns:
    """One row per static step; cycles are those of one execution, int64[n_steps, n_chips].

    Of a step whose cycles depend on data they are the average of its executions.
    """

    name: tuple[str, ...]
    kind: tuple[StepKind, ...]
    path: tuple[tuple[str, ...], ...]
    source: tuple[str, ...]
    executed: Ints  # int64[n_steps]
    sync: Ints
    exchange: Ints
    compute: Ints
    is_known: Ints  # bool[n_steps]: False until a first run has counted its compute cycles
    n_active_tiles: Ints  # int64[n_steps]
    balance: Ints  # float64[n_steps]: average ÷ largest tile compute, of active tiles

    @property
    def cycles(self) -> Ints:
        """int64[n_steps]: of the slowest chip, one execution."""
        return (self.sync + self.exchange + self.compute).max(axis=1)


@dataclass(frozen=True, slots=True)
class TileColumns:
    """One row per tile of a replica: bytes, and cycles over everything that ran."""

    n_bytes: Ints  # including gaps
    n_bytes_always_live: Ints
    n_bytes_temporary: Ints
    compute: Ints  # cycles, idle workers included
    busy: Ints  # cycles, idle workers left out
    exchange: Ints


@dataclass(frozen=True, slots=True)
class VertexTypeRow:
    codelet: str
    n_vertices: int
    cycles: int  # over everything that ran
    provenance: str
    n_code_bytes: int


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """Everything known about a compiled program and, if it ran, its execution."""

    target: Target
    replication_factor: int
    n_vertices: int
    n_edges: int
    n_variables: int
    n_compute_sets: int
    memory: TileMemoryTable
    steps: StepColumns
    tiles: TileColumns
    vertex_types: tuple[VertexTypeRow, ...]
    provenance_cycles: dict[str, int]  # vertex cycles of everything that ran, by provenance
    host_exchange: Ints  # int64[n_steps, n_chips], parts of the steps' exchange
    link_exchange: Ints
    links: LinkColumns  # between chips, over everything that ran
    energy: Energy  # of everything that ran
    cycles_by_family: dict[str, int]  # of everything that ran; see intervals.py
    phases_of_chip: Ints  # int64[n_chips, 5]: cycles of everything that ran, by phases.PHASES
    has_run: bool
    cycles_of_chip: Ints
    program_names: tuple[str, ...]
    _origin: tuple[Executable, ExecutedSteps | None] = field(repr=False, compare=False)

    @property
    def executable(self) -> Executable:
        """What was compiled."""
        return self._origin[0]

    @property
    def ran(self) -> ExecutedSteps | None:
        """What ran, as it was given."""
        return self._origin[1]

    def pva(self) -> Any:  # noqa: ANN401 - a tremula.vision.pva.Report, which is loaded on request
        """This report as pva's object model, which `pva.openReport` gives for a file."""
        return vision("pva.report").report_of(*self._origin)

    @property
    def compilation(self) -> Any:  # noqa: ANN401
        """Pva's compilation: memory, programs, variables."""
        return self.pva().compilation

    @property
    def execution(self) -> Any:  # noqa: ANN401
        """Pva's execution: what ran, and how long it took."""
        return self.pva().execution

    @property
    def chip(self) -> Chip:
        return self.target.chip

    @property
    def total_cycles(self) -> int:
        """Modelled cycles since load, on the slowest chip."""
        if not self.has_run:
            raise MissingProfileData(
                "nothing has run yet, so there is no execution to report.",
                hint="call engine.load() and engine.run() first; memory and steps are there "
                "already",
            )
        return int(self.cycles_of_chip.max())

    @property
    def cycle_interval(self) -> tuple[int, int]:
        """Cycles between which real hardware would be, nine times in ten: see intervals.py."""
        return cycle_interval(self.total_cycles, self.cycles_by_family)

    @property
    def total_seconds(self) -> float:
        return self.total_cycles / self.chip.clock_hz

    @property
    def placeholder_share(self) -> float:
        """The part of all vertex cycles whose cost is a placeholder."""
        total = sum(self.provenance_cycles.values())
        return self.provenance_cycles["placeholder"] / total if total else 0.0

    def bytes_by_category(self) -> dict[str, Ints]:
        """int64[n_tiles] per category of memory."""
        return {name: self.memory.category(name) for name in CATEGORIES}

    def cycles_of_step(self, step: int) -> int:
        """Cycles of one execution of a step on its slowest chip; an error if not yet counted."""
        if not self.steps.is_known[step]:
            raise MissingPerfEstimate(
                f"step {self.steps.name[step]!r} has a codelet whose cycles depend on its data and "
                "has not run yet.",
                hint="run the program once, or give the codelet a cycles method",
            )
        return int(self.steps.cycles[step])

    def __repr__(self) -> str:
        ran = f"{self.total_cycles:,} cycles" if self.has_run else "not run"
        return f"ProgramReport({self.chip.name}, {self.n_vertices:,} vertices, {ran})"


def make_report(executable: Executable, execution: ExecutedSteps | None = None) -> ProgramReport:
    """Columns from an executable, and from what ran of it."""
    costs = executable.analysis.costs
    memory = executable.analysis.memory
    n_steps, n_chips = costs.sync.shape
    measured = execution
    if execution is None:
        nothing = np.zeros(n_steps, np.int64)
        chips = np.zeros(n_chips, np.int64)
        execution = ExecutedSteps(nothing, chips, costs.compute, ~costs.needs_count, {})
    tables = [t for cs in executable.compute_sets for t in cs.tables]
    totals = _table_cycles(executable, costs, execution)
    target = executable.target
    seconds = int(np.max(execution.cycles_of_chip)) / target.chip.clock_hz
    return ProgramReport(
        target=target,
        replication_factor=executable.replication_factor,
        n_vertices=sum(t.n_rows for t in tables),
        n_edges=_n_edges(executable),
        n_variables=len(executable.variables.names),
        n_compute_sets=len(executable.compute_sets),
        memory=memory,
        steps=_step_columns(executable, costs, execution),
        tiles=_tile_columns(memory, costs, execution),
        vertex_types=_vertex_types(executable, costs, totals),
        provenance_cycles=_provenance_cycles(totals),
        host_exchange=costs.host_exchange,
        link_exchange=costs.link_exchange,
        links=link_columns(executable, costs, execution.executed),
        energy=energy_of(executable, costs, execution.executed, seconds, target.chip),
        cycles_by_family=cycles_by_family(costs, execution.executed, execution.compute),
        phases_of_chip=busy_phases(costs, execution).sum(axis=0),
        has_run=bool(execution.executed.any()),
        cycles_of_chip=np.array(execution.cycles_of_chip),
        program_names=executable.names,
        _origin=(executable, measured),
    )


def busy_phases(costs: StepCosts, execution: ExecutedSteps) -> Ints:
    """int64[n_steps, n_chips, 5]: everything that ran, on the critical path or not."""
    result = step_phases(costs, execution.compute) * execution.executed[:, None, None]
    for step, counted in execution.counted.items():
        result[step, :, 0] = counted.total_chip_cycles
    return result


def _n_edges(executable: Executable) -> int:
    """Connections of vertices: one per sub-vector of an edge field."""
    total = 0
    for compute_set in executable.compute_sets:
        for table in compute_set.tables:
            for column in columns_of(executable.codelets[table.codelet].spec.fields):
                if column.role == "offset":
                    total += len(table.columns[column.index])
    return total


def _tile_cycles(costs: StepCosts, execution: ExecutedSteps, step: int) -> Ints:
    counted = execution.counted.get(step)
    return costs.tile_compute(step) if counted is None else counted.tile_cycles


def _step_columns(
    executable: Executable, costs: StepCosts, execution: ExecutedSteps
) -> StepColumns:
    n_active, balance = [], []
    for number in range(len(executable.steps)):
        tiles = _tile_cycles(costs, execution, number)
        active = tiles[tiles > 0]
        n_active.append(len(active))
        balance.append(float(active.mean() / active.max()) if len(active) else 1.0)
    return StepColumns(
        tuple(s.name for s in executable.steps),
        tuple(s.kind for s in executable.steps),
        tuple(s.path for s in executable.steps),
        tuple(s.source for s in executable.steps),
        np.array(execution.executed),
        costs.sync,
        costs.exchange,
        np.array(execution.compute),
        np.array(execution.is_counted),
        np.array(n_active, np.int64),
        np.array(balance, np.float64),
    )


def _tile_columns(
    memory: TileMemoryTable, costs: StepCosts, execution: ExecutedSteps
) -> TileColumns:
    n_tiles = memory.always_live.shape[1]
    compute, busy, exchange = (np.zeros(n_tiles, np.int64) for _ in range(3))
    for step in np.flatnonzero(execution.executed).tolist():
        times, counted = int(execution.executed[step]), execution.counted.get(step)
        if counted is None:
            compute += times * costs.tile_compute(step)
            busy += times * costs.tile_busy(step)
        else:
            compute += counted.total_tile_cycles
            busy += counted.total_busy_cycles
        exchange += times * costs.tile_exchange(step)
    return TileColumns(
        memory.including_gaps,
        memory.always_live.sum(axis=0),
        memory.temporary.sum(axis=0),
        compute,
        busy,
        exchange,
    )


def _table_cycles(executable: Executable, costs: StepCosts, execution: ExecutedSteps) -> list[Ints]:
    """int64[n_tables, n_standings] of each compute set: vertex cycles of everything that ran."""
    totals = [np.zeros((len(c.tables), len(PROVENANCES)), np.int64) for c in costs.compute_sets]
    for step in np.flatnonzero(execution.executed).tolist():
        number = int(costs.compute_set_of_step[step])
        if number < 0:
            continue
        for i, table in enumerate(costs.compute_sets[number].tables):
            totals[number][i] += int(execution.executed[step]) * table.provenance_cycles
        counted = execution.counted.get(step)
        tables = executable.compute_sets[number].tables
        for i, cycles in enumerate(() if counted is None else counted.total_table_cycles):
            provenance = executable.codelets[tables[i].codelet].provenance
            totals[number][i, PROVENANCES.index(provenance)] += max(0, cycles)
    return totals


def _vertex_types(
    executable: Executable, costs: StepCosts, totals: list[Ints]
) -> tuple[VertexTypeRow, ...]:
    """Rows by name. The provenance of a type is that of most of its cycles."""
    n_vertices: dict[str, int] = {}
    once: dict[str, Ints] = {}
    ran: dict[str, Ints] = {}
    codelets: dict[str, Codelet] = {}
    for number, compute_set in enumerate(executable.compute_sets):
        for i, table in enumerate(compute_set.tables):
            codelet = executable.codelets[table.codelet]
            name = codelet.spec.name
            codelets[name] = codelet
            n_vertices[name] = n_vertices.get(name, 0) + table.n_rows
            of_table = costs.compute_sets[number].tables[i].provenance_cycles
            once[name] = once.get(name, 0) + of_table
            ran[name] = ran.get(name, 0) + totals[number][i]
    return tuple(
        VertexTypeRow(
            name,
            n_vertices[name],
            int(ran[name].sum()),
            _provenance_of_most(ran[name] if ran[name].any() else once[name], codelet),
            codelet.spec.n_instructions * executable.target.chip.instruction_bytes,
        )
        for name, codelet in sorted(codelets.items())
    )


def _provenance_of_most(cycles: Ints, codelet: Codelet) -> str:
    """The provenance with the most cycles; where there are none yet, the codelet's."""
    return (PROVENANCES[int(cycles.argmax())] if cycles.any() else codelet.provenance).value


def _provenance_cycles(totals: list[Ints]) -> dict[str, int]:
    """Vertex cycles of everything that ran, by provenance."""
    of_all = sum((tables.sum(axis=0) for tables in totals), np.zeros(len(PROVENANCES), np.int64))
    return {s.value: int(n) for s, n in zip(PROVENANCES, of_all, strict=True)}
