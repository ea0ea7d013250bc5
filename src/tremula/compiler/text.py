"""A compilation as text, for people and for diff: what a pass left, one fact a line.

Sections come in the order of the passes: the text after a pass is the text before it and, at its
end, what the pass found. Names stand where numbers would shift: variables, steps and tiles are
named, addresses never are, and only instructions that something jumps to have a label. Vertices are
counted per codelet. A long section shows its first lines and says how many it left out.

    compute sets: 1
      'scale'
        Scale: 8 vertices on tiles 0..3, 2 a tile
    instructions: 4
      program 'main'
        loop begin 10 times, if none to L1
      L0:
        execute 'main/scale'
        loop end to L0
      L1:
        end
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.cost import StepCosts
from tremula.compiler.passes.exchange import StepExchange, StepExchanges
from tremula.compiler.passes.liveness import LiveRanges
from tremula.compiler.passes.memory import CATEGORIES, TileMemoryTable
from tremula.compiler.program_ir import FrozenComputeSet, LoweredPrograms, Opcode, Step
from tremula.poplar.tensors.layout import variables_met
from tremula.poplar.tensors.tensor import Tensor

Ints = np.ndarray
MAX_LINES = 1000  # of a section
_MAX_NAMES = 4  # of the variables of one tensor


def compilation_text(
    programs: LoweredPrograms,
    exchanges: StepExchanges | None = None,
    liveness: LiveRanges | None = None,
    costs: StepCosts | None = None,
    memory: TileMemoryTable | None = None,
    executable: Executable | None = None,
) -> str:
    """Everything known so far; sections of passes that have not run are left out."""
    lines = [*_target(programs), *_variables(programs), *_compute_sets(programs), *_code(programs)]
    if exchanges is not None:
        lines += _exchanges(programs, exchanges)
    if liveness is not None:
        lines += _liveness(programs, liveness)
    if costs is not None:
        lines += _costs(programs, costs)
    if memory is not None:
        lines += _memory(memory)
    if executable is not None:
        lines += _executable(executable)
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    """A title and its lines, indented; of a long section the first ones."""
    shown = [f"  {line}" for line in lines[:MAX_LINES]]
    if len(lines) > MAX_LINES:
        shown.append(f"  … and {len(lines) - MAX_LINES} more")
    return [title, *shown]


# -- what was lowered ------------------------------------------------------------------------------


def _target(programs: LoweredPrograms) -> list[str]:
    graph = programs.graph
    target = graph.target
    machine = f"{target.n_ipus} x {target.tiles_per_ipu} tiles"
    return [f"target: {target.chip.name}, {machine}, replicas: {graph.replication_factor}"]


def _variables(programs: LoweredPrograms) -> list[str]:
    variables, tile_map = programs.graph.variables, programs.graph.tile_map
    owner = variables.ids_at(tile_map.begin)
    first = np.searchsorted(owner, np.arange(len(variables) + 1))
    lines = []
    for variable, name in enumerate(variables.names):
        tiles = tile_map.tile[first[variable] : first[variable + 1]]
        kind = "constant " if variables.is_constant[variable] else ""
        type_name, shape = variables.types[variable].name, list(variables.shapes[variable])
        lines.append(f"{kind}{name!r} {type_name} {shape} on {_tiles(tiles)}")
    return _section(f"variables: {len(lines)}", sorted(lines))


def _tiles(tiles: Ints) -> str:
    """`tile 3`, `tiles 0..7`, or `5 of tiles 0..7`."""
    met = np.unique(tiles)
    if not len(met):
        return "no tile"
    low, high = int(met[0]), int(met[-1])
    if low == high:
        return f"tile {low}"
    span = f"tiles {low}..{high}"
    return span if len(met) == high - low + 1 else f"{len(met)} of {span}"


def _span(values: Ints) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low}..{high}"


def _compute_sets(programs: LoweredPrograms) -> list[str]:
    graph = programs.graph
    lines = []
    numbers = graph.set_numbers()
    for number, (compute_set, first) in enumerate(zip(graph.compute_sets, numbers, strict=True)):
        if first < number:
            lines.append(f"{compute_set.name!r} like {graph.compute_sets[first].name!r}")
        else:
            lines += [f"{compute_set.name!r}", *_tables(compute_set)]
    return _section(f"compute sets: {len(graph.compute_sets)}", lines)


def _tables(compute_set: FrozenComputeSet) -> Iterator[str]:
    """Vertices by codelet, and how many each tile has."""
    for table in compute_set.template_tables:
        if not table.n_rows:
            continue
        per_tile = np.unique(table.tile, return_counts=True)[1]
        yield (
            f"  {table.codelet.spec.name}: {table.n_rows} vertices on {_tiles(table.tile)}, "
            f"{_span(per_tile)} a tile"
        )


def _code(programs: LoweredPrograms) -> list[str]:
    """The instruction table, program by program; functions come behind the last."""
    labels = _labels(programs)
    entries = dict(zip(programs.entries, programs.names, strict=True))
    lines: list[str] = []
    for i in range(len(programs.code)):
        if i in entries:
            lines.append(f"program {entries[i]!r}")
        if i in labels:
            lines.append(f"{labels[i]}:")
        lines.append(f"  {_instruction(programs, i, labels)}")
    return _section(f"instructions: {len(programs.code)}", lines)


# The operand of each instruction that is a place in the code.
_TARGET_OF = {
    Opcode.JUMP: 0, Opcode.LOOP_BEGIN: 2, Opcode.LOOP_END: 1, Opcode.BRANCH_ZERO: 2,
    Opcode.BRANCH_NONZERO: 2,
    Opcode.SWITCH: 4, Opcode.CALL: 0, Opcode.LOOP_FOREVER: 0,
}  # fmt: skip


def _labels(programs: LoweredPrograms) -> dict[int, str]:
    """A label for every instruction that another jumps to, in order."""
    targets = set(programs.switch_cases[:, 1].tolist())
    for op, operand in _TARGET_OF.items():
        targets.update(programs.code[programs.code[:, 0] == op, 1 + operand].tolist())
    return {place: f"L{number}" for number, place in enumerate(sorted(targets))}


def _instruction(programs: LoweredPrograms, i: int, labels: dict[int, str]) -> str:
    op = Opcode(int(programs.code[i, 0]))
    b, c, d = programs.code[i, 2:5].tolist()
    number = int(programs.step_of[i])
    words = [op.name.lower().replace("_", " ")]
    if op is Opcode.LOOP_BEGIN:
        words.append(f"{b} times, if none")
    if number >= 0:
        words.append(_step(programs, programs.steps[number]))
    if op is Opcode.SWITCH:
        cases = programs.switch_cases[c:d].tolist()
        words += [f"{value}: {labels[target]}," for value, target in cases] + ["else"]
    if op in _TARGET_OF:
        target = int(programs.code[i, 1 + _TARGET_OF[op]])
        words.append(f"to {labels[target]}")
    if op is Opcode.STAMP:
        words.append(f"of tile {b}")
    return " ".join(words)


def _step(programs: LoweredPrograms, step: Step) -> str:
    """`'path/name'`, the compute set if its name differs, and the tensors of other steps."""
    text = f"{_step_name(step)!r}"
    if step.compute_set >= 0:
        name = programs.graph.compute_sets[step.compute_set].name
        text += "" if name == step.name else f" of {name!r}"
    reads, writes = (", ".join(_tensor(t) for t in ts) for ts in (step.reads, step.writes))
    if reads or writes:
        text += f" ({' → '.join(part for part in (reads, writes) if part)})"
    return text


def _step_name(step: Step) -> str:
    return "/".join((*step.path, step.name))


def _tensor(tensor: Tensor) -> str:
    ids = variables_met(tensor)
    names = [tensor.variables.names[v] for v in ids[:_MAX_NAMES]]
    more = f" and {len(ids) - _MAX_NAMES} more" if len(ids) > _MAX_NAMES else ""
    return f"{'+'.join(names)}{more} {list(tensor.shape)}"


# -- what the passes found -------------------------------------------------------------------------


def _exchanges(programs: LoweredPrograms, exchanges: StepExchanges) -> list[str]:
    lines = []
    for number, step in enumerate(programs.steps):
        moved = _moved(exchanges.of_step(number))
        if moved:
            lines.append(f"{_step_name(step)!r}: {moved}")
    n_distinct = len(exchanges.distinct)
    return _section(f"exchange: {len(lines)} steps move data, {n_distinct} distinct", lines)


def _moved(exchange: StepExchange) -> str:
    parts = []
    for when, phase in (("in", exchange.before), ("back", exchange.after)):
        if phase is not None:
            sent, received, largest = phase.sent.sum(), phase.received.sum(), phase.received.max()
            fragments = phase.n_in_fragments.sum()
            parts.append(
                f"{when} {sent} bytes sent, {received} received in {fragments} fragments, "
                f"at most {largest} a tile"
            )
            if phase.crosses_chips:
                parts.append(f"{phase.chip_bytes.sum()} between chips")
    for what, copies in (("gathers", exchange.gather), ("scatters", exchange.scatter)):
        if copies is not None:
            parts.append(f"{what} {copies.n_bytes.sum()} bytes in {copies.n_copies.sum()} copies")
    if exchange.buffer_bytes is not None:
        parts.append(f"buffers at most {exchange.buffer_bytes.max()} bytes a tile")
    return "; ".join(parts)


def _liveness(programs: LoweredPrograms, liveness: LiveRanges) -> list[str]:
    names, places = programs.graph.variables.names, _step_names(programs)
    so_far = np.append(0, np.cumsum(liveness.tile_bytes))
    n_bytes = so_far[liveness.tile_start[1:]] - so_far[liveness.tile_start[:-1]]
    always, used = np.flatnonzero(liveness.always_live), np.flatnonzero(liveness.is_used)
    lines = [f"{names[v]!r} always, {n_bytes[v]} bytes" for v in always.tolist()]
    lines += [f"{names[v]!r} never used" for v in np.flatnonzero(~liveness.is_used).tolist()]
    ranges = (liveness.range_variable, liveness.range_first, liveness.range_last)
    for v, first, last in zip(*(column.tolist() for column in ranges), strict=True):
        where = f"from {places[first]} to {places[last]}"
        lines.append(f"{names[v]!r} {where}, {n_bytes[v]} bytes")
    at, peak = _peak(liveness.in_fullest_calls(), n_bytes, len(programs.code))
    title = (
        f"liveness: {len(always)} of {len(used)} used variables are always live, "
        f"{int(n_bytes[always].sum())} bytes; the others need {peak} bytes at {places[at]}"
    )
    return _section(title, sorted(lines))


def _step_names(programs: LoweredPrograms) -> list[str]:
    """For each instruction the name of its step or, where it has none, of the next."""
    name, names = "the end", ["the end"]
    for step in reversed(programs.step_of.tolist()):
        name = f"{_step_name(programs.steps[step])!r}" if step >= 0 else name
        names.append(name)
    return names[::-1]


def _peak(liveness: LiveRanges, n_bytes: Ints, n_instructions: int) -> tuple[int, int]:
    """(instruction, bytes on all tiles) where temporary variables need most."""
    change = np.zeros(n_instructions + 1, np.int64)
    np.add.at(change, liveness.range_first, n_bytes[liveness.range_variable])
    np.add.at(change, liveness.range_last + 1, -n_bytes[liveness.range_variable])
    now = np.cumsum(change)
    return int(now.argmax()), int(now.max())


def _memory(memory: TileMemoryTable) -> list[str]:
    lines = []
    for row, name in enumerate(CATEGORIES):
        always, temporary = memory.always_live[row], memory.temporary[row]
        if always.any() or temporary.any():
            lines.append(
                f"{name}: {always.sum()} bytes always live, {temporary.sum()} temporary, "
                f"at most {(always + temporary).max()} a tile"
            )
    fullest, has = int(memory.including_gaps.max()), memory.available_bytes
    lines.append(f"fullest tile: {fullest} of {has} bytes, gaps included")
    if memory.is_full.any():
        over = int(memory.placement.overflowed.max())
        lines.append(f"out of memory: {int(memory.is_full.sum())} tiles, by at most {over} bytes")
    return _section(f"memory: {int(memory.excluding_gaps.sum())} bytes", lines)


def _costs(programs: LoweredPrograms, costs: StepCosts) -> list[str]:
    lines = []
    for number, step in enumerate(programs.steps):
        sync, exchange = int(costs.sync[number].max()), int(costs.exchange[number].max())
        compute = f"{int(costs.compute[number].max())}"
        if costs.needs_count[number]:
            compute = "counted"  # while it runs
        lines.append(
            f"{_step_name(step)!r}: sync {sync}, exchange {exchange}, compute {compute}, "
            f"flops {int(costs.n_flops[number])}"
        )
    total = int(costs.total.max(axis=1).sum())
    return _section(f"cycles: {total}, each of {len(lines)} steps once", lines)


def _executable(executable: Executable) -> list[str]:
    sets = executable.compute_sets
    lines = [
        f"codelets: {len(executable.codelet_forms)}",
        f"vertex tables: {sum(len(cs.tables) for cs in sets)}",
        f"gathers: {sum(len(cs.gathers) for cs in sets)}",
        f"scatters: {sum(len(cs.scatters) for cs in sets)}",
        f"copies: {len(executable.copies)}",
        f"initial values: {len(executable.initial_values)}",
        f"arena: {executable.n_arena_bytes} bytes",
    ]
    return _section("executable:", lines)
