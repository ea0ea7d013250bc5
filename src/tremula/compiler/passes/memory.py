"""Memory of every tile by category, always live and temporary, and the error of a full tile."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tremula.base.errors import GraphMemoryAllocationError
from tremula.base.source import Source
from tremula.base.wording import counted
from tremula.compiler.file.codec import record
from tremula.compiler.passes.exchange import ExchangePhase, StepExchanges
from tremula.compiler.passes.intervals import sum_per_tile
from tremula.compiler.passes.liveness import LiveRanges
from tremula.compiler.passes.placement import Needs, Placement, addresses, place, place_on
from tremula.compiler.passes.sweeps import sweep_peak
from tremula.compiler.passes.vertex_bytes import TABLE_ENTRY_BYTES, row_bytes
from tremula.compiler.program_ir import HOST_KINDS, FrozenGraph, LoweredPrograms
from tremula.hardware import Chip

Ints = np.ndarray

PARTS = ("Internal vertex state", "Edge pointers", "Copy pointers", "Padding", "Descriptors")


@record
@dataclass(frozen=True, slots=True)
class VertexMemory:
    """int64[n_tiles] columns, and totals for the report."""

    instances: Ints
    field_data: Ints  # arrays beside the vertex: pointers of lists, state vectors
    descriptors: Ints  # of vector lists
    code: Ints
    control_table: Ints
    bytes_of_part: Ints  # int64[5], in the order of PARTS
    bytes_of_type: dict[str, int]


def vertex_memory(graph: FrozenGraph, copy_bytes: int) -> VertexMemory:
    """Memory of all vertices; `copy_bytes` describe inserted copies."""
    n_tiles, chip = graph.target.n_tiles, graph.target.chip
    instances, field_data, descriptors, table_bytes = np.zeros((4, n_tiles), np.int64)
    parts = np.zeros(len(PARTS), np.int64)
    parts[2] = copy_bytes
    of_type: dict[str, int] = {}
    uses_code: dict[str, Ints] = {}
    code = np.zeros(n_tiles, np.int64)
    firsts, n_alike = np.unique(np.array(graph.set_numbers(), np.int64), return_counts=True)
    for first, n in zip(firsts.tolist(), n_alike.tolist(), strict=True):
        for table in graph.compute_sets[first].template_tables:
            spec = table.codelet.spec
            rows = row_bytes(table, chip)
            instances += n * sum_per_tile(table.tile, rows.instance, n_tiles)
            field_data += n * sum_per_tile(table.tile, rows.outside, n_tiles)
            descriptors += n * sum_per_tile(table.tile, rows.listed, n_tiles)
            table_bytes += n * sum_per_tile(table.tile, None, n_tiles) * TABLE_ENTRY_BYTES
            columns = (rows.state, rows.pointers + rows.outside, rows.padding, rows.listed)
            sums = [n * int(c.sum()) for c in columns]
            parts[[0, 1, 3, 4]] += sums
            of_type[spec.name] = of_type.get(spec.name, 0) + sum(sums)
            for name, n_instructions in ((spec.name, spec.n_instructions), *spec.routines):
                here = uses_code.setdefault(name, np.zeros(n_tiles, bool))
                is_new = np.zeros(n_tiles, bool)
                is_new[table.tile] = True
                code += n_instructions * chip.instruction_bytes * (is_new & ~here)
                here |= is_new
    return VertexMemory(instances, field_data, descriptors, code, table_bytes, parts, of_type)


# -- all categories --------------------------------------------------------------------------------

# In the order of the profile summary; those that never occur here stay zero.
CATEGORIES = (
    "Variables", "Constants", "Host Exchange Packet Headers", "Global Exchange Packet Headers",
    "Stack", "Vertex Instances", "Copy Descriptors", "VectorList Descriptors", "Vertex Field Data",
    "Control Table", "Control Code", "Vertex Code", "Internal Exchange Code", "Host Exchange Code",
    "Global Exchange Code", "Instrumentation Results", "Shared Code Storage", "Shared Data Storage",
)  # fmt: skip
CODE_CATEGORIES = (
    "Control Code", "Vertex Code", "Internal Exchange Code", "Host Exchange Code",
    "Global Exchange Code",
)  # fmt: skip
# Published: 8,861,908 bytes of control code for the 832 programs of an EfficientNet on 1472 tiles
# (PopLiner's test profiles), 7.2 bytes each: a step calls its exchange and its compute set.
CONTROL_INSTRUCTIONS_PER_STEP = 2
_N_SHOWN = 5


@record
@dataclass(frozen=True, slots=True)
class TileMemoryTable:
    """Bytes on each tile: `always_live` and `temporary` are int64[n_categories, n_tiles].

    Temporary is what the fullest moment of the tile holds: live variables, and buffers for exchange
    and rearrangement. `peak_at` int64[n_tiles] is its instruction, -1 for none.
    """

    always_live: Ints
    temporary: Ints
    peak_at: Ints
    placement: Placement
    available_bytes: int
    vertices: VertexMemory

    @property
    def excluding_gaps(self) -> Ints:
        """int64[n_tiles]: all bytes in use at the fullest moment."""
        return self.always_live.sum(axis=0) + self.temporary.sum(axis=0)

    @property
    def including_gaps(self) -> Ints:
        """int64[n_tiles]: the same with the gaps that placement leaves."""
        return self.placement.including_gaps

    @property
    def is_full(self) -> Ints:
        """bool[n_tiles]: the tile is out of memory."""
        return self.placement.overflowed > 0

    def category(self, name: str) -> Ints:
        """int64[n_tiles]: always-live and temporary bytes of one category."""
        row = CATEGORIES.index(name)
        return self.always_live[row] + self.temporary[row]


def memory_of(
    programs: LoweredPrograms, liveness: LiveRanges, exchanges: StepExchanges, takes_part: Ints
) -> TileMemoryTable:
    """The memory of all tiles. `takes_part` bool[n_steps, n_chips]: chips that run a step."""
    graph, chip = programs.graph, programs.graph.target.chip
    n_tiles = graph.target.n_tiles
    rows = {name: np.zeros(n_tiles, np.int64) for name in CATEGORIES}
    copy_bytes = _copy_bytes(exchanges, n_tiles)
    vertices = vertex_memory(graph, int(copy_bytes.sum()))
    is_constant = np.array(graph.variables.is_constant, bool).reshape(len(graph.variables))
    rows["Variables"] += liveness.always_live_bytes(n_tiles, ~is_constant)
    rows["Constants"] += liveness.always_live_bytes(n_tiles, is_constant)
    rows["Stack"] += chip.n_workers * chip.n_bytes_worker_stack + chip.n_bytes_supervisor_stack
    rows["Vertex Instances"] += vertices.instances
    rows["Copy Descriptors"] += copy_bytes
    rows["VectorList Descriptors"] += vertices.descriptors
    rows["Vertex Field Data"] += vertices.field_data
    rows["Control Table"] += vertices.control_table
    rows["Vertex Code"] += vertices.code
    n_control = _n_control_instructions(programs.step_of, takes_part)
    per_chip = graph.target.tiles_per_ipu
    rows["Control Code"] += np.repeat(n_control * chip.instruction_bytes, per_chip)
    _add_exchange_code(rows, programs, exchanges)
    temporary, peak_at = _peak(programs, liveness, exchanges)
    always_live = np.stack([rows[name] for name in CATEGORIES])
    temporaries = np.zeros((len(CATEGORIES), n_tiles), np.int64)
    temporaries[CATEGORIES.index("Variables")] = temporary
    return TileMemoryTable(
        always_live,
        temporaries,
        peak_at,
        place(graph, liveness, needs_of(always_live, temporaries)),
        chip.n_bytes_available_per_tile,
        vertices,
    )


def placed_on(chip: Chip, memory: TileMemoryTable, liveness: LiveRanges) -> Placement:
    """A memory's contents placed on another chip."""
    needs = needs_of(memory.always_live, memory.temporary)
    return place_on(chip, liveness, memory.placement.special, needs)


def addresses_of(memory: TileMemoryTable, liveness: LiveRanges, chip: Chip) -> Ints:
    """int64[n_entries]: where on its tile each variable lies; -1 for nowhere."""
    needs = needs_of(memory.always_live, memory.temporary)
    return addresses(chip, liveness, memory.placement.special, needs)


def needs_of(always_live: Ints, temporary: Ints) -> Needs:
    """What placement asks of bytes by category × tile."""
    is_code = np.isin(CATEGORIES, CODE_CATEGORIES)
    is_variable = np.isin(CATEGORIES, ("Variables", "Constants"))
    fixed = always_live[~is_code & ~is_variable].sum(axis=0)
    return Needs(always_live[is_code].sum(axis=0), fixed, temporary.sum(axis=0))


def _n_control_instructions(step_of: Ints, takes_part: Ints) -> Ints:
    """int64[n_chips]: a chip has loops and branches, and the steps in which it takes part."""
    n_steps = takes_part[step_of[step_of >= 0]].sum(axis=0)
    return n_steps * CONTROL_INSTRUCTIONS_PER_STEP + int((step_of < 0).sum())


def _copy_bytes(exchanges: StepExchanges, n_tiles: int) -> Ints:
    """int64[n_tiles]: descriptors of all copies within tiles."""
    total = np.zeros(n_tiles, np.int64)
    for moved, times in zip(exchanges.distinct, exchanges.n_uses.tolist(), strict=True):
        for copies in (moved.gather, moved.scatter):
            if copies is not None:
                total += copies.descriptor_bytes * times
    return total


def _add_exchange_code(
    rows: dict[str, Ints], programs: LoweredPrograms, exchanges: StepExchanges
) -> None:
    """Code grows with fragments, not bytes; steps with the same exchange share it."""
    chip = programs.graph.target.chip
    is_host = np.zeros(len(exchanges.distinct), bool)
    for number, step in enumerate(programs.steps):
        if step.kind in HOST_KINDS and exchanges.row_of_step[number] >= 0:
            is_host[exchanges.row_of_step[number]] = True
    times = exchanges.n_uses.tolist()
    for host, n, moved in zip(is_host.tolist(), times, exchanges.distinct, strict=True):
        for phase in (moved.before, moved.after):
            if phase is not None:
                kind = "Global" if phase.crosses_chips else "Internal"
                kind = "Host" if host else kind
                rows[f"{kind} Exchange Code"] += n * exchange_code_bytes(phase, chip)


def exchange_code_bytes(phase: ExchangePhase, chip: Chip) -> Ints:
    """int64[n_tiles]: code of one exchange."""
    takes_part = (phase.n_in_fragments > 0) | (phase.n_out_fragments > 0)
    return (
        takes_part * chip.n_bytes_exchange_code_per_phase
        + phase.n_in_controls * chip.n_bytes_exchange_code_per_receive_control
        + phase.n_out_fragments * chip.n_bytes_exchange_code_per_send_fragment
    )


def _peak(
    programs: LoweredPrograms, liveness: LiveRanges, exchanges: StepExchanges
) -> tuple[Ints, Ints]:
    """int64[n_tiles]: largest temporary bytes, and the instruction where they are needed."""
    n, n_tiles = len(programs.code), programs.graph.target.n_tiles
    buffers, row_of = [np.zeros(n_tiles, np.int64)], np.full(len(exchanges.distinct) + 1, -1)
    for row, moved in enumerate(exchanges.distinct):
        if moved.buffer_bytes is not None:
            row_of[row] = len(buffers)
            buffers.append(moved.buffer_bytes)
    # Instructions without a step, and steps without exchange, are row -1: the last, which is -1.
    row_of_step = np.append(exchanges.row_of_step, -1)
    temporary_row = row_of[row_of_step[programs.step_of]]
    by_last = np.argsort(liveness.range_last, kind="stable")
    at = np.arange(n + 1)
    peak, peak_at = np.zeros(n_tiles, np.int64), np.full(n_tiles, -1, np.int64)
    sweep_peak(
        np.searchsorted(liveness.range_first, at), liveness.range_variable,
        np.searchsorted(liveness.range_last[by_last], at), liveness.range_variable[by_last],
        liveness.tile_start, liveness.tile, liveness.tile_bytes,
        temporary_row, np.stack(buffers), liveness.rows_of_calls(n), liveness.absent_bytes(n_tiles),
        peak, peak_at, np.zeros_like(peak),
    )  # fmt: skip
    return peak, peak_at


class VariableNames(Protocol):
    """What the error says of variables: a graph's table or an executable's records."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def sources(self) -> Sequence[Source] | Sequence[str]: ...


def out_of_memory_error(
    memory: TileMemoryTable, liveness: LiveRanges, variables: VariableNames, chip: Chip
) -> GraphMemoryAllocationError | None:
    """The error of the worst tile, naming the largest things on it; None if all tiles fit."""
    full = np.flatnonzero(memory.is_full)
    if not len(full):
        return None
    tile = int(full[np.argmax(memory.placement.overflowed[full])])
    over = int(memory.placement.overflowed[tile])
    needed, has = memory.available_bytes + over, memory.available_bytes
    contents = _contents(memory, liveness, variables, tile)
    shown = "; ".join(f"{name} {n_bytes:,}" for n_bytes, name, _ in contents[:_N_SHOWN])
    largest = next((v for _, _, v in contents if v >= 0), -1)
    hint = "use more tiles, or fewer and smaller vertices on this one"
    if largest >= 0:
        hint = f"spread {variables.names[largest]!r} over more tiles, or make it smaller"
    source = variables.sources[largest] if largest >= 0 else None
    limit = f"tile {tile} needs {needed:,} bytes but has {has:,}"
    n_code = int(needs_of(memory.always_live, memory.temporary).code[tile])
    if over == n_code - chip.n_bytes_region0:
        limit = (
            f"tile {tile} needs {n_code:,} bytes of code but has {chip.n_bytes_region0:,} for it"
        )
        hint = "use fewer kinds of operations on this tile, or more chips"
        source = None
    return GraphMemoryAllocationError(
        f"Out of memory on {counted(len(full), 'tile')}: {limit} ({over:,} over).\n"
        f"  largest: {shown}",
        source=source,  # pyright: ignore[reportArgumentType] - a stored line prints the same
        hint=hint,
    )


def _contents(
    memory: TileMemoryTable, liveness: LiveRanges, variables: VariableNames, tile: int
) -> list[tuple[int, str, int]]:
    """(bytes, name, variable or -1) of everything on a tile at its fullest, largest first."""
    entry = np.flatnonzero(liveness.tile == tile)
    variable = np.searchsorted(liveness.tile_start, entry, side="right") - 1
    n_bytes = liveness.tile_bytes[entry]
    at_peak = liveness.in_fullest_calls().live_at(int(memory.peak_at[tile]))
    is_live = np.isin(variable, at_peak)
    here = is_live | liveness.always_live[variable]
    result = [
        (b, repr(variables.names[v]), v)
        for b, v in zip(n_bytes[here].tolist(), variable[here].tolist(), strict=True)
    ]
    buffers = int(memory.temporary[:, tile].sum()) - int(n_bytes[is_live].sum())
    gaps = int(memory.including_gaps[tile] - memory.excluding_gaps[tile])
    others = [
        (int(memory.always_live[row, tile]), name.lower(), -1)
        for row, name in enumerate(CATEGORIES)
        if name not in ("Variables", "Constants")
    ]
    others += [(buffers, "exchange buffers", -1), (gaps, "gaps", -1)]
    return sorted((item for item in (*result, *others) if item[0] > 0), key=lambda i: -i[0])
