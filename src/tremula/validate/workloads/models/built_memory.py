"""What the bytes of a compiled training program are for, chip by chip and tile by tile.

Layers of a chip add up some of them and share others, so they are separate here:

* resident: weights, states, constants
* sums: gradients, over micro-batches
* waiting: what stages of a pipeline keep for their backward stages, in rings
* registers: what came from other chips
* passing: the largest sum of everything else while micro-batches pass
* updating: the same in the update of weights
* code, with vertices and tables; the code of each codelet, which all parts of a chip share; stacks
"""

import re
from dataclasses import dataclass

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.liveness import LiveRanges
from tremula.compiler.passes.memory import CATEGORIES
from tremula.compiler.passes.sweeps import sweep_peak
from tremula.compiler.program_ir import Opcode

Ints = np.ndarray
_RING = re.compile(r"ring\d+-\d+$")
_REGISTER = re.compile(r"/stage\d+$")
_DATA = [CATEGORIES.index(name) for name in ("Variables", "Constants")]
_ONCE = [CATEGORIES.index(name) for name in ("Stack", "Vertex Code")]
SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class BuiltMemory:
    """Bytes of a tile, int64[n_chips, n_tiles] each; `has_codelet` bool[n, n_chips, n_tiles]."""

    resident: Ints
    sums: Ints
    waiting: Ints
    registers: Ints
    passing: Ints
    updating: Ints
    code: Ints
    codelet_bytes: Ints  # int64[n]
    has_codelet: Ints
    stack_bytes: int
    available_bytes: int

    def vertex_code(self, has_part: Ints) -> Ints:
        """int64[n_tiles]: code of the codelets on a chip that has these parts, bool[n_chips]."""
        is_there = self.has_codelet[:, has_part].any(axis=1)
        return self.codelet_bytes @ is_there.astype(np.int64)


def built_memory(executable: Executable, n_chips: int) -> BuiltMemory:
    """The memory of an executable, whose tiles belong to `n_chips` equal chips."""
    memory, live = executable.analysis.memory, executable.analysis.liveness
    always = memory.always_live
    names = executable.variables.names
    is_ring = np.array([bool(_RING.match(name)) for name in names], bool)
    is_register = np.array([bool(_REGISTER.search(name)) for name in names], bool)
    is_carried = _carried(executable)
    n_all = always.shape[1]
    waiting = live.always_live_bytes(n_all, is_ring)
    is_update = _is_update(executable)
    passing, updating = (
        _peak(executable, ~is_carried, np.flatnonzero(chosen)) for chosen in (~is_update, is_update)
    )
    once = np.zeros(len(CATEGORIES), bool)
    once[_ONCE + _DATA] = True
    codelet_bytes, has_codelet = _codelets(executable, n_all)
    columns = (
        always[_DATA].sum(axis=0) - waiting,
        _bytes_of(live, is_carried & ~is_register, n_all),
        waiting,
        _bytes_of(live, is_carried & is_register, n_all),
        passing,
        updating,
        always[~once].sum(axis=0),
    )
    return BuiltMemory(
        *(column.reshape(n_chips, -1) for column in columns),
        codelet_bytes=codelet_bytes,
        has_codelet=has_codelet.reshape(len(codelet_bytes), n_chips, -1),
        stack_bytes=int(always[_ONCE[0]].max()),
        available_bytes=memory.available_bytes,
    )


def _bytes_of(live: LiveRanges, chosen: Ints, n_tiles: int) -> Ints:
    """int64[n_tiles]: of chosen variables, bool[n_variables]."""
    weights = live.tile_bytes * np.repeat(chosen, np.diff(live.tile_start))
    return np.bincount(live.tile, weights=weights, minlength=n_tiles).astype(np.int64)


# -- parts of a program ----------------------------------------------------------------------------


def _loop_end(executable: Executable) -> int:
    """The end of the loop over micro-batches: the longest of the program; -1 without any."""
    code = executable.code
    ends = np.flatnonzero(code[:, 0] == Opcode.LOOP_END)
    return int(max(ends, key=lambda i: i - code[i, 2], default=-1))


def _carried(executable: Executable) -> Ints:
    """bool[n_variables]: not always live, but from one micro-batch to the next."""
    live = executable.analysis.liveness
    result = np.zeros(len(live.always_live), bool)
    end = _loop_end(executable)
    if end >= 0:
        result[live.live_at(end)] = True
    return result & ~live.always_live


def _is_update(executable: Executable) -> Ints:
    """bool[n_instructions]: behind the last micro-batch, in the order in which they first run."""
    steps, step_of = executable.steps, executable.step_of
    shifts = [i for i, n in enumerate(step_of.tolist()) if n >= 0 and steps[n].name == SHIFT]
    last = max([*shifts, _loop_end(executable)], default=-1)
    time_of = executable.analysis.liveness.time_of
    if last < 0:
        return np.zeros(len(time_of), bool)
    return time_of > time_of[last]


def _peak(executable: Executable, counts: Ints, instructions: Ints) -> Ints:
    """int64[n_tiles]: most bytes of counted temporary variables and buffers at instructions."""
    live, exchanges = executable.analysis.liveness, executable.analysis.exchanges
    n_tiles = executable.analysis.memory.always_live.shape[1]
    mine = counts[live.range_variable]
    variable = live.range_variable[mine]
    first = np.searchsorted(instructions, live.range_first[mine])
    last = np.searchsorted(instructions, live.range_last[mine], side="right") - 1
    is_there = first <= last
    variable, first, last = variable[is_there], first[is_there], last[is_there]
    by_first, by_last = np.argsort(first, kind="stable"), np.argsort(last, kind="stable")
    buffers, row_of = [np.zeros(n_tiles, np.int64)], np.full(len(exchanges.distinct) + 1, -1)
    for row, moved in enumerate(exchanges.distinct):
        if moved.buffer_bytes is not None:
            row_of[row] = len(buffers)
            buffers.append(moved.buffer_bytes)
    row_of_step = np.append(exchanges.row_of_step, -1)
    temporary_row = row_of[row_of_step[executable.step_of[instructions]]]
    at, peak = np.arange(len(instructions) + 1), np.zeros(n_tiles, np.int64)
    sweep_peak(
        np.searchsorted(first[by_first], at), variable[by_first],
        np.searchsorted(last[by_last], at), variable[by_last],
        live.tile_start, live.tile, live.tile_bytes,
        temporary_row, np.stack(buffers), live.rows_of_calls(len(executable.code))[instructions],
        live.absent_bytes(n_tiles, counts), peak, np.full(n_tiles, -1), np.zeros_like(peak),
    )  # fmt: skip
    return peak


def _codelets(executable: Executable, n_tiles: int) -> tuple[Ints, Ints]:
    """Bytes of each codelet and routine, int64[n]; which tiles have it, bool[n, n_tiles]."""
    has: dict[str, Ints] = {}
    n_bytes: dict[str, int] = {}
    instruction_bytes = executable.target.chip.instruction_bytes
    for compute_set in executable.compute_sets:
        for table in compute_set.tables:
            spec = executable.codelets[table.codelet].spec
            for name, n in ((spec.name, spec.n_instructions), *spec.routines):
                has.setdefault(name, np.zeros(n_tiles, bool))[table.tile] = True
                n_bytes[name] = n * instruction_bytes
    if not has:
        return np.zeros(0, np.int64), np.zeros((0, n_tiles), bool)
    return np.array(list(n_bytes.values()), np.int64), np.stack(list(has.values()))
