"""Liveness: at which instructions a variable's content matters, and what lives all the time.

A variable is live from a complete write to its last read. What is live where a program starts was
left by an earlier run, so it is always live; as are variables the host can name, constants, and
variables with initial values. The others may share memory.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from tremula.compiler.file.codec import record
from tremula.compiler.passes.calls import FunctionCalls, calls_of, without_rows
from tremula.compiler.passes.frames import Frames, frames_of
from tremula.compiler.passes.intervals import edge_bytes
from tremula.compiler.passes.sweeps import add_bytes_of, bytes_of_variables, flow_back
from tremula.compiler.program_ir import (
    FrozenComputeSet,
    FrozenGraph,
    LoweredPrograms,
    Opcode,
    Step,
    StepKind,
)
from tremula.poplar.tensors.interval_sweeps import mark_holders
from tremula.poplar.tensors.runs import joined_intervals
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.compute_set import TemplateInstance

Ints = np.ndarray
_WORD_BITS = 64


# -- which variables each step uses, and which it overwrites completely ---------------------------


Intervals = tuple[Ints, Ints]


class VariableAccess(NamedTuple):
    """Variable ids of one step.

    A variable that is written in part is used: the rest of it must survive.
    """

    used: Ints
    overwritten: Ints  # every byte written, none read


def accesses_of(programs: LoweredPrograms) -> list[VariableAccess]:
    """One per static step."""
    sets, places = programs.graph.compute_sets, _Places(programs.graph.variables)
    copy_of_step = programs.copies_by_step()
    kinds = [_kind(programs, n, copy_of_step.get(n)) for n in range(len(programs.steps))]
    firsts: dict[object, int] = {}
    for number, (key, _) in enumerate(kinds):
        firsts.setdefault(key, number)

    def access_of(number: int) -> VariableAccess:
        step, variables = programs.steps[number], kinds[number][1]
        access = places.access(step, *_touched_by_step(step, sets))
        return access if variables is None else _slots(access, variables)

    known = {key: access_of(number) for key, number in firsts.items()}
    return [
        places.with_metadata(
            known[key]
            if variables is None
            else VariableAccess(*(np.sort(variables[slots]) for slots in known[key]))
        )
        for key, variables in kinds
    ]


def _kind(programs: LoweredPrograms, number: int, copy: int | None) -> tuple[object, Ints | None]:
    """A key of steps that access the same slots, and the variables in these; None: no slots."""
    step = programs.steps[number]
    if copy is not None:
        alike = programs.alike_copies[copy]
        return ("copy", alike.first), np.array(alike.variables, np.int64)
    if step.kind is not StepKind.EXECUTE or step.reads or step.writes:
        return ("step", number), None
    of = programs.graph.compute_sets[step.compute_set].contents
    if isinstance(of, TemplateInstance):
        return of.template, np.array(of.variables, np.int64)
    return ("set", step.compute_set), None


def _slots(access: VariableAccess, variables: Ints) -> VariableAccess:
    """An access to variables that take the place of a template's, as one to its slots."""
    order = np.argsort(variables)
    return VariableAccess(*(order[np.searchsorted(variables, ids, sorter=order)] for ids in access))


def _touched_by_step(
    step: Step, sets: tuple[FrozenComputeSet, ...]
) -> tuple[list[Ints], Intervals]:
    """Where everything that a step reads begins, and what it writes."""
    reads = [begin[end > begin] for begin, end in _of_tensors(step.reads)]
    writes = list(_of_tensors(step.writes))
    if step.kind is StepKind.EXECUTE:
        set_reads, set_writes = _touched_by_set(sets[step.compute_set])
        reads += set_reads
        writes += set_writes
    return reads, _union(writes)


class _Places:
    """The variable table as arrays, made once."""

    def __init__(self, variables: VariableTable):
        self.base = np.asarray(variables.base_bytes, np.int64)
        self.n_bytes = np.asarray(variables.end_bytes, np.int64) - self.base
        self.metadata_of = variables.metadata_of

    def ids_at(self, begin: Ints) -> Ints:
        return np.searchsorted(self.base, begin, side="right") - 1

    def access(self, step: Step, reads: list[Ints], writes: Intervals) -> VariableAccess:
        written, place = np.unique(self.ids_at(writes[0]), return_inverse=True)
        covered = np.bincount(place, weights=writes[1] - writes[0], minlength=len(written))
        is_whole = covered == self.n_bytes[written]
        partial = written[~is_whole]
        if step.kind is StepKind.WRITE_UNDEF:
            partial = partial[:0]  # writes nothing: part of the variable becomes undefined
        is_used = np.zeros(len(self.base), bool)
        is_used[partial] = True
        for begin in reads:
            mark_holders(begin, self.base, is_used)
        used = np.flatnonzero(is_used)
        return VariableAccess(used, np.setdiff1d(written[is_whole], used, assume_unique=True))

    def with_metadata(self, access: VariableAccess) -> VariableAccess:
        """Reading or writing 8-bit floats reads their metadata, which is no slot of a template."""
        of = self.metadata_of
        touched = np.concatenate(access).tolist() if of else ()
        read = [of[v] for v in touched if v in of]
        if not read:
            return access
        used = np.union1d(access.used, np.array(read, np.int64))
        return VariableAccess(used, np.setdiff1d(access.overwritten, used, assume_unique=True))


def _touched_by_set(compute_set: FrozenComputeSet) -> tuple[list[Ints], list[Intervals]]:
    """Where all runs that are read begin, and intervals that are written."""
    reads, writes = [], []
    for table in compute_set.tables:
        for spec in table.codelet.spec.fields:
            if spec.is_edge and spec.is_read:  # a run never leaves its variable
                start, count, _ = table.edges[spec.name].runs
                reads.append((start if count.all() else start[count > 0]) * spec.type.n_bytes)
            if spec.is_edge and spec.is_written:
                writes.append(joined_intervals(*edge_bytes(table, spec)[:2]))
    return reads, writes


def _of_tensors(tensors: Iterable[Tensor]) -> Iterator[Intervals]:
    return (tensor.covered_intervals() for tensor in tensors)


def _union(parts: Iterable[Intervals]) -> Intervals:
    nothing = (np.empty(0, np.int64),) * 2
    begin, end = zip(*[nothing, *parts], strict=True)
    return joined_intervals(np.concatenate(begin), np.concatenate(end))


# -- liveness -------------------------------------------------------------------------------------


@record
@dataclass(frozen=True, slots=True)
class LiveRanges:
    """Live ranges of variables over the instruction table.

    Range k: `range_variable[k]` needs its memory at instructions range_first[k] … range_last[k];
    ranges are sorted by their first instruction. Always-live variables have no ranges.
    Variable v has `tile_bytes[j]` bytes on tile `tile[j]` for j in tile_start[v] … tile_start[v+1].
    `time_of[i]` is the place of instruction i if every function followed its first call. Ranges
    have what is live in any call of a function; `calls` says what is not in each.
    """

    always_live: Ints  # bool[n_variables]
    is_used: Ints  # bool[n_variables]: by a step or the host; others take no memory
    range_variable: Ints
    range_first: Ints
    range_last: Ints
    tile_start: Ints
    tile: Ints
    tile_bytes: Ints
    time_of: Ints
    frames: Frames
    calls: FunctionCalls | None  # of functions whose calls differ

    def in_fullest_calls(self) -> "LiveRanges":
        """With ranges of what is live together in the call of each function that needs most."""
        if self.calls is None:
            return self
        n_bytes = self.bytes_of_variables()
        ranges = self.range_variable, self.range_first, self.range_last
        for function in range(len(self.calls.begin)):
            absent = self.calls.absent_in_fullest(function, n_bytes)
            rows = int(self.calls.begin[function]), int(self.calls.end[function])
            ranges = without_rows(ranges, absent, *rows)
        variable, first, last = ranges
        return replace(
            self, range_variable=variable, range_first=first, range_last=last, calls=None
        )

    def absent_bytes(self, n_tiles: int, only: Ints | None = None) -> Ints:
        """int64[1 + n_functions, n_tiles]: what is not in a tile's fullest call of a function.

        Row 0, all zeros, is for what is in no such function (`FunctionCalls.row_of`); `only` is a
        bool[n_variables] of those that count.
        """
        if self.calls is None:
            return np.zeros((1, n_tiles), np.int64)
        rows = [np.zeros(n_tiles, np.int64)]
        for function in range(len(self.calls.begin)):
            each = (self._bytes_of(v, n_tiles, only) for v in self.calls.absent_in(function))
            rows.append(reduce(np.minimum, each))
        return np.stack(rows)

    def rows_of_calls(self, n_instructions: int) -> Ints:
        """int64[n_instructions]: the row of `absent_bytes` of each."""
        if self.calls is None:
            return np.zeros(n_instructions, np.int64)
        return self.calls.row_of(n_instructions)

    def _bytes_of(self, variables: Ints, n_tiles: int, only: Ints | None) -> Ints:
        """int64[n_tiles]: bytes of some variables."""
        counts = np.zeros(len(self.always_live), bool)
        counts[variables] = True
        return self._bytes_where(counts if only is None else counts & only, n_tiles)

    def bytes_of_variables(self) -> Ints:
        """int64[n_variables]: bytes on all tiles."""
        result = np.zeros(len(self.always_live), np.int64)
        has_any = self.tile_start[1:] > self.tile_start[:-1]
        if has_any.any():
            result[has_any] = np.add.reduceat(self.tile_bytes, self.tile_start[:-1][has_any])
        return result

    def live_at(self, instruction: int) -> Ints:
        """Ids of the variables, always live ones left out, that need memory there."""
        mine = (self.range_first <= instruction) & (self.range_last >= instruction)
        return np.unique(self.range_variable[mine])

    def always_live_bytes(self, n_tiles: int, only: Ints | None = None) -> Ints:
        """int64[n_tiles]: bytes of always-live variables; `only` is a further bool[n_variables]."""
        counts = self.always_live if only is None else self.always_live & only
        return self._bytes_where(counts, n_tiles)

    def _bytes_where(self, counts: Ints, n_tiles: int) -> Ints:
        """int64[n_tiles]: bytes of the variables that count, bool[n_variables]."""
        total = np.zeros(n_tiles, np.int64)
        add_bytes_of(self.tile_start, self.tile, self.tile_bytes, counts, total)
        return total


def analyse_liveness(programs: LoweredPrograms) -> LiveRanges:
    """Dataflow over the instruction table, loops, branches and calls included."""
    graph = programs.graph
    n_variables = len(graph.variables)
    accesses = accesses_of(programs)
    flow = _Flow(programs, accesses, n_variables)
    flow.solve()
    always = _named_by_host(graph)
    always[np.flatnonzero(graph.variables.is_constant)] = True
    for entry in programs.entries:
        always |= _bits(flow.live_in[entry], n_variables)
    is_used = always.copy()
    for access in accesses:
        is_used[access.used] = is_used[access.overwritten] = True
    always &= is_used
    occupied = flow.occupied() & ~_words([np.flatnonzero(always)], flow.n_words)[0]
    variable, first, last = _ranges(occupied)
    columns = always, is_used, variable, first, last, *_tiles_of_variables(graph)
    functions = _functions(programs)
    calls = calls_of(functions, occupied, flow.touched)
    ranges = variable, first, last
    frames = frames_of(functions, occupied, flow.touched, ranges, n_variables)
    return LiveRanges(*columns, _times(programs), frames, calls)


def _ends(programs: LoweredPrograms) -> dict[int, int]:
    """Where each program and function ends, by where it begins."""
    code = programs.code
    targets = code[code[:, 0] == Opcode.CALL, 1]
    starts = np.unique(np.concatenate((programs.entries, targets))).astype(np.int64)
    return dict(zip(starts.tolist(), [*starts[1:].tolist(), len(code)], strict=True))


def _functions(programs: LoweredPrograms) -> dict[tuple[int, int], list[int]]:
    """The instructions that call each function, by its rows."""
    ends, result = _ends(programs), {}
    for call in np.flatnonzero(programs.code[:, 0] == Opcode.CALL).tolist():
        begin = int(programs.code[call, 1])
        result.setdefault((begin, ends[begin]), []).append(call)
    return result


def _times(programs: LoweredPrograms) -> Ints:
    """int64[n_instructions]: their places if every function followed its first call."""
    code, end_of = programs.code, _ends(programs)
    is_call = code[:, 0] == Opcode.CALL
    order: list[Ints] = []
    seen: set[int] = set()

    def visit(start: int) -> None:
        seen.add(start)
        begin, end = start, end_of[start]
        for call in (start + np.flatnonzero(is_call[start:end])).tolist():
            target = int(code[call, 1])
            if target not in seen:
                order.append(np.arange(begin, call + 1))
                begin = call + 1
                visit(target)
        order.append(np.arange(begin, end))

    for entry in programs.entries:
        visit(entry)
    time_of = np.empty(len(code), np.int64)
    time_of[np.concatenate(order)] = np.arange(len(code))
    return time_of


class _Flow:
    """Bitsets over variables, one row per instruction."""

    def __init__(self, programs: LoweredPrograms, accesses: list[VariableAccess], n_variables: int):
        self.code = programs.code
        self.n = len(self.code)
        self.n_words = max(1, -(-n_variables // _WORD_BITS))
        self.use, self.kill = self._bitsets(programs, accesses)
        self.touched = self.use | self.kill
        self.successors = [_successors(programs, i) for i in range(self.n)]
        counts = [len(targets) for targets in self.successors]
        self.successor_start = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        self.successor = np.array([t for ts in self.successors for t in ts], np.int64)
        self.entry_of_call = np.where(self.code[:, 0] == Opcode.CALL, self.code[:, 1], -1)
        self.live_in, self.live_out = (np.zeros_like(self.use) for _ in range(2))

    def _bitsets(
        self, programs: LoweredPrograms, accesses: list[VariableAccess]
    ) -> tuple[Ints, Ints]:
        used = _words([access.used for access in accesses], self.n_words)
        overwritten = _words([access.overwritten for access in accesses], self.n_words)
        return used[programs.step_of], overwritten[programs.step_of]  # step -1 is the empty row

    def solve(self) -> None:
        """Summarise functions, callees first; then let liveness flow through everything."""
        entries = np.unique(self.entry_of_call[self.entry_of_call >= 0]).tolist()
        bodies = {entry: self._body(entry) for entry in entries}
        done: set[int] = set()
        for entry in entries:
            self._summarise(entry, bodies, done)
        returns = [
            (entry, row)
            for entry, body in bodies.items()
            for row in body.tolist()
            if self.code[row, 0] == Opcode.RETURN
        ]
        self.live_in[:], self.live_out[:] = 0, 0
        self._run(np.arange(self.n), np.array(returns, np.int64).reshape(-1, 2))

    def _summarise(self, entry: int, bodies: dict[int, Ints], done: set[int]) -> None:
        """Let calls of a function use and kill what its body does. There is no recursion."""
        if entry in done:
            return
        done.add(entry)
        body = bodies[entry]
        for callee in np.unique(self.entry_of_call[body]).tolist():
            if callee >= 0:
                self._summarise(callee, bodies, done)
        calls = self.entry_of_call == entry
        self.use[calls] = self._through(body, entry, survives=0)
        self.kill[calls] = ~self._through(body, entry, survives=-1)

    def _through(self, body: Ints, entry: int, *, survives: int) -> Ints:
        """What is live at a function's entry if nothing, or everything, is live at its end."""
        self.live_in[body], self.live_out[body] = 0, 0
        ends = body[self.code[body, 0] == Opcode.RETURN]
        self.live_out[ends] = np.array([survives], np.int64).view(np.uint64)
        self._run(body, np.empty((0, 2), np.int64))
        return self.live_in[entry].copy()

    def _run(self, rows: Ints, returns: Ints) -> None:
        flow_back(
            rows, self.live_in, self.live_out, self.use, self.kill, self.successor_start,
            self.successor, self.entry_of_call, returns,
        )  # fmt: skip

    def _body(self, entry: int) -> Ints:
        """Instructions of a function, its callees left out."""
        seen, waiting = {entry}, [entry]
        while waiting:
            for target in self.successors[waiting.pop()]:
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return np.array(sorted(seen), np.int64)

    def occupied(self) -> Ints:
        """What needs memory at each instruction: live before or after it, or touched by it."""
        return self.live_in | self.live_out | self.touched


def _successors(programs: LoweredPrograms, i: int) -> tuple[int, ...]:
    """Instructions that may come after instruction i; a call comes back behind itself."""
    op, a, b, c, d, e = programs.code[i].tolist()
    if op in (Opcode.END, Opcode.RETURN):
        return ()
    if op == Opcode.JUMP:
        return (a,)
    if op == Opcode.LOOP_BEGIN:
        return (i + 1,) if b > 0 else (c,)
    if op == Opcode.LOOP_END:
        return (b, i + 1)
    if op in (Opcode.BRANCH_ZERO, Opcode.BRANCH_NONZERO):
        return (i + 1, c)
    if op == Opcode.SWITCH:
        return (*programs.switch_cases[c:d, 1].tolist(), e)
    if op == Opcode.LOOP_FOREVER:
        return (a, i + 1)
    return (i + 1,)


def _words(sets: list[Ints], n_words: int) -> Ints:
    """uint64[n + 1, n_words]: sets of variables, a row each; the last row is empty."""
    words = np.zeros((len(sets) + 1) * n_words, np.uint64)
    variables = np.concatenate([np.empty(0, np.int64), *sets])
    row = np.repeat(np.arange(len(sets)), [len(each) for each in sets])
    bit = np.left_shift(np.uint64(1), (variables % _WORD_BITS).astype(np.uint64))
    np.bitwise_or.at(words, row * n_words + variables // _WORD_BITS, bit)
    return words.reshape(-1, n_words)


def _bits(words: Ints, n: int) -> Ints:
    """bool[n]: the members of a set."""
    each = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
    return each[:n].astype(bool)


def _ranges(occupied: Ints) -> tuple[Ints, Ints, Ints]:
    """(variable, first, last) of maximal ranges of instructions, sorted by the first."""
    edge = np.zeros((1, occupied.shape[1]), np.uint64)
    changed = np.concatenate((occupied, edge)) ^ np.concatenate((edge, occupied))
    row, word = np.nonzero(changed)
    each = np.unpackbits(
        changed[row, word].astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little"
    )
    hit, bit = np.nonzero(each)
    at, variable = row[hit], word[hit] * _WORD_BITS + bit
    # Each variable changes at the beginning of a range, then behind its end, and so on.
    order = np.lexsort((at, variable))
    at, variable = at[order], variable[order]
    first, last, variable = at[0::2], at[1::2] - 1, variable[0::2]
    by_first = np.argsort(first, kind="stable")
    return variable[by_first], first[by_first], last[by_first]  # contiguous again


def _named_by_host(graph: FrozenGraph) -> Ints:
    """bool[n_variables]: variables with a host handle or an initial value."""
    named = np.zeros(len(graph.variables), bool)
    handles = graph.handles
    tensors = [*handles.reads.values(), *handles.writes.values()]
    tensors += [tensor for tensor, _ in graph.initial_parts]
    for tensor in tensors:
        named[tensor.variable_ids()] = True
    if graph.replica_index is not None:
        named[graph.replica_index] = True
    return named


def _tiles_of_variables(graph: FrozenGraph) -> tuple[Ints, Ints, Ints]:
    """CSR of each variable's tiles and bytes there."""
    tile_map = graph.tile_map
    ends = np.asarray(graph.variables.end_bytes, np.int64)
    row_start = np.concatenate(([0], np.searchsorted(tile_map.begin, ends)))
    start = np.zeros(len(row_start), np.int64)
    tile, n_bytes = np.empty((2, len(tile_map.tile)), np.int64)
    now = np.zeros(graph.target.n_tiles, np.int64)
    bytes_of_variables(row_start, *tile_map, now, start, tile, n_bytes)
    return start, tile[: start[-1]], n_bytes[: start[-1]]  # no page behind these was touched
