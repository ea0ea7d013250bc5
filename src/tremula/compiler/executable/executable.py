"""Executable: everything needed to run a program and report on it; checked when it is read."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO

import numpy as np

from tremula.base.errors import FileLoadError, PoplarError
from tremula.base.types import as_type
from tremula.codelets import codelet_from_dict
from tremula.codelets.columns import columns_of
from tremula.codelets.spec import Codelet, CodeletSpec, FieldKind, VertexBase
from tremula.compiler.executable.records import (
    ComputeSetRecord,
    HostRecords,
    InitialValue,
    MachineRecord,
    StepRecord,
    TableRecord,
    VariableRecords,
    View,
)
from tremula.compiler.file.codec import read_bytes, read_record, record, write_record, write_to
from tremula.compiler.passes.cost import StepCosts
from tremula.compiler.passes.exchange import StepExchanges, exchange_columns
from tremula.compiler.passes.liveness import LiveRanges
from tremula.compiler.passes.memory import TileMemoryTable
from tremula.compiler.passes.vertex_costs import ComputeSetCost, TableCost
from tremula.compiler.program_ir import N_OPERANDS, CopyPlan, Opcode, StepKind
from tremula.compiler.worker_states import WORD_BYTES, n_states_bytes, states_shape
from tremula.poplar.target import Target
from tremula.poplar.tensors.runs import Runs
from tremula.poplar.tensors.tile_map import ByteTileMap

FILE_KIND = "executable"


@record
@dataclass(frozen=True, slots=True)
class Analysis:
    """What the passes found out; every figure of a report comes from here."""

    exchanges: StepExchanges
    liveness: LiveRanges
    memory: TileMemoryTable
    costs: StepCosts


@record
@dataclass(frozen=True)
class Executable:
    """A compiled program. `save` and `load` are safe with untrusted files: data only, checked."""

    machine: MachineRecord
    replication_factor: int
    replica_index_byte: int  # where each replica finds its index, or -1
    names: tuple[str, ...]
    entries: tuple[int, ...]
    code: np.ndarray
    step_of: np.ndarray
    switch_cases: np.ndarray
    n_loop_slots: int
    n_arena_bytes: int
    worker_states_byte: int  # where the workers' records start; see worker_states.py
    steps: tuple[StepRecord, ...]
    copies: tuple[CopyPlan, ...]
    compute_sets: tuple[ComputeSetRecord, ...]
    codelet_forms: tuple[str, ...]  # JSON of each codelet's to_dict
    variables: VariableRecords
    initial_values: tuple[InitialValue, ...]
    host: HostRecords
    analysis: Analysis
    options: Mapping[str, object] = field(default_factory=dict)
    tile_map: ByteTileMap | None = None  # which tile holds which bytes; older files have none

    @cached_property
    def target(self) -> Target:
        return self.machine.target()

    @cached_property
    def codelets(self) -> tuple[Codelet, ...]:
        return tuple(codelet_from_dict(json.loads(form)) for form in self.codelet_forms)

    def save(self, path: str) -> None:
        """Write to a file, atomically."""
        write_record(path, FILE_KIND, self)

    @staticmethod
    def load(path: str) -> "Executable":
        """Read a file; raises FileLoadError if it is not an intact, consistent executable."""
        executable = read_record(path, FILE_KIND, Executable)
        validate(executable, str(path))
        return executable

    def serialize(self, out: IO[bytes]) -> None:
        """Write to a stream of bytes."""
        write_to(out, FILE_KIND, self)

    @staticmethod
    def deserialize(source: IO[bytes]) -> "Executable":
        """Read a stream to its end; raises FileLoadError if that is not an intact executable."""
        name = str(getattr(source, "name", "stream"))
        executable = read_bytes(source.read(), FILE_KIND, Executable, name)
        validate(executable, name)
        return executable


# -- checks of an executable that was read: what it names exists -----------------------------------


_TARGET_OPERANDS = {
    Opcode.JUMP: (0,), Opcode.LOOP_BEGIN: (2,), Opcode.LOOP_END: (1,), Opcode.BRANCH_ZERO: (2,),
    Opcode.BRANCH_NONZERO: (2,), Opcode.SWITCH: (4,), Opcode.CALL: (0,), Opcode.LOOP_FOREVER: (0,),
}  # fmt: skip


# Far more than any system has chips.
MAX_REPLICAS = 1 << 16
N_SEED_WORDS = 4  # 32-bit words of a worker's state


class _Inconsistent(Exception):
    """What is wrong, in a few words."""


def validate(executable: Executable, path: str) -> None:
    """Raise FileLoadError unless everything the executable refers to exists."""
    try:
        _check_shape(executable)
        _check_tile_map(executable)
        _check_code(executable)
        _check_steps(executable)
        _check_costs(executable)
        limits = _Limits()
        _check_copies(executable, limits)
        _check_tables(executable, limits)
        _check_views(executable, limits)
    except (
        _Inconsistent,
        PoplarError,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
        ZeroDivisionError,
    ) as error:
        raise FileLoadError(
            f"{path!r} is inconsistent: {error}.", hint="compile the program again"
        ) from error


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise _Inconsistent(what)


def _check_shape(executable: Executable) -> None:
    """The machine exists, memory holds the variables, and the code's arrays are integers."""
    variables, n_bytes = executable.variables, executable.n_arena_bytes
    _require(executable.target.n_tiles > 0, "there is no machine")
    _require(0 < executable.replication_factor <= MAX_REPLICAS, "the number of replicas is wrong")
    n_variables = len(variables.names)
    columns = (variables.type_names, variables.shapes, variables.sources, variables.is_constant)
    _require({len(c) for c in columns} == {n_variables}, "the variables are incomplete")
    _require(
        len(variables.base_bytes) == len(variables.end_bytes) == n_variables,
        "columns of variables differ in length",
    )
    inside = (variables.base_bytes >= 0) & (variables.end_bytes >= variables.base_bytes)
    _require(bool((inside & (variables.end_bytes <= n_bytes)).all()), "a variable lies outside")
    at = executable.replica_index_byte
    _require(at == -1 or 0 <= at <= n_bytes - 4, "the replica index lies outside")
    at, n_state_bytes = executable.worker_states_byte, n_states_bytes(executable.target)
    is_inside = at % WORD_BYTES == 0 and 0 <= at <= n_bytes - n_state_bytes
    _require(is_inside, "the workers' records lie outside")
    for array in (executable.code, executable.step_of, executable.switch_cases):
        _require(array.dtype == np.int64, "the code has the wrong type")
    _require(executable.switch_cases.shape[1:] == (2,), "the cases have the wrong shape")
    _require(len(executable.names) == len(executable.entries), "names and entries differ in number")


def _check_tile_map(executable: Executable) -> None:
    """Sorted, disjoint intervals of the memory on tiles that exist."""
    if executable.tile_map is None:
        return
    begin, end, tile = executable.tile_map
    for column in (begin, end, tile):
        _require(column.dtype == np.int64 and column.shape == begin.shape[:1], "a map is malformed")
    _check_range(tile, executable.target.n_tiles, "a byte is on a missing tile")
    _check_range(end, executable.n_arena_bytes + 1, "the map of tiles leaves the memory")
    is_sorted = (begin >= 0).all() and (begin < end).all() and (begin[1:] >= end[:-1]).all()
    _require(bool(is_sorted), "the map of tiles is not sorted")


def _check_code(executable: Executable) -> None:
    code, n_steps = executable.code, len(executable.steps)
    _require(code.ndim == 2 and code.shape[1] == 1 + N_OPERANDS, "the code has the wrong shape")
    _require(len(executable.step_of) == len(code) > 0, "steps and code differ in length")
    _check_range(executable.step_of + 1, n_steps + 1, "an instruction names a missing step")
    op = code[:, 0]
    _require(bool(((op >= 0) & (op <= max(Opcode))).all()), "an instruction is unknown")
    for kind, operands in _TARGET_OPERANDS.items():
        for operand in operands:
            _check_range(code[op == kind, 1 + operand], len(code), "a jump leaves the code")
    _check_range(np.array(executable.entries), len(code), "an entry point is missing")
    _check_range(executable.switch_cases[:, 1], len(code), "a case leaves the code")
    _check_range(
        code[op == Opcode.EXECUTE, 1], len(executable.compute_sets), "a compute set is missing"
    )
    _check_range(code[op == Opcode.COPY, 1], len(executable.copies), "a copy is missing")
    for kind in (Opcode.LOOP_BEGIN, Opcode.LOOP_END):
        _check_range(code[op == kind, 1], executable.n_loop_slots, "a loop counter is missing")
    _check_scalars(executable, op)
    _require(op[-1] in (Opcode.END, Opcode.RETURN, Opcode.JUMP), "the code does not end")


def _check_scalars(executable: Executable, op: np.ndarray) -> None:
    """Scalars that instructions read or write lie in memory."""
    code, n_bytes = executable.code, executable.n_arena_bytes
    is_branch = (op == Opcode.BRANCH_ZERO) | (op == Opcode.BRANCH_NONZERO) | (op == Opcode.SWITCH)
    has_result = (op == Opcode.EXECUTE) & (code[:, 2] != -1)
    for rows, at, size in ((code[is_branch], 1, 2), (code[has_result], 2, 3)):
        _require(bool(np.isin(rows[:, size], (1, 2, 4, 8)).all()), "a scalar has a wrong size")
        _check_range(rows[:, at], n_bytes, "a scalar lies outside the memory")
        _check_range(rows[:, at] + rows[:, size], n_bytes + 1, "a scalar reaches outside")
    stamps = code[op == Opcode.STAMP]
    _check_range(stamps[:, 1], n_bytes - 7, "a cycle stamp lies outside the memory")
    _check_range(stamps[:, 2], executable.target.n_tiles, "a cycle stamp names a missing tile")
    earlier = stamps[:, 3]
    _check_range(earlier[earlier != -1], n_bytes - 7, "a cycle stamp lies outside the memory")
    switches = code[op == Opcode.SWITCH]
    n_cases = len(executable.switch_cases)
    _check_range(switches[:, 3], n_cases + 1, "a switch names missing cases")
    _check_range(switches[:, 4], n_cases + 1, "a switch names missing cases")


# The host's table that a step's handle is in.
_HANDLE_TABLES = {
    StepKind.STREAM_IN: "streams", StepKind.STREAM_OUT: "streams", StepKind.REMOTE_READ: "buffers",
    StepKind.REMOTE_WRITE: "buffers", StepKind.HOST_CALL: "functions",
}  # fmt: skip


def _check_steps(executable: Executable) -> None:
    n_sets = len(executable.compute_sets)
    for step in executable.steps:
        first = 0 if step.kind is StepKind.EXECUTE else -1
        _require(first <= step.compute_set < n_sets, "a step names a missing compute set")
        table = _HANDLE_TABLES.get(step.kind)
        if table is not None:
            known = getattr(executable.host, table)
            _require(step.detail["handle"] in known, "a step names a missing stream or function")
        if step.kind in (StepKind.STREAM_IN, StepKind.REMOTE_READ):
            _require(len(step.writes) == 1, "a copy has no destination")
        elif step.kind in (StepKind.STREAM_OUT, StepKind.REMOTE_WRITE, StepKind.PRINT):
            _require(len(step.reads) > 0, "a copy has no source")
        elif step.kind is StepKind.MACHINE_STATE:
            target = executable.target
            n_seeds = target.n_tiles * target.chip.n_workers * N_SEED_WORDS
            is_whole = all(v.n_elems == n_seeds for v in (*step.reads, *step.writes))
            _require(is_whole, "seeds have the wrong size")


def _check_costs(executable: Executable) -> None:
    """Cycle columns have a row for every step: the interpreter reads them unchecked."""
    costs = executable.analysis.costs
    n_steps = len(executable.steps)
    per_chip = (n_steps, executable.target.n_ipus)
    for array in (costs.sync, costs.exchange, costs.compute):
        _require(array.shape == per_chip and array.dtype == np.int64, "the costs are malformed")
    _require(costs.is_active.shape == per_chip, "the costs are malformed")
    for array in (costs.joins, costs.needs_count):
        _require(array.shape == (n_steps,) and array.dtype == bool, "the costs are malformed")
    _check_exchanges(executable)
    _check_cost_rows(executable)


def _check_exchanges(executable: Executable) -> None:
    """Rows of steps and compute sets exist, and each has columns of all tiles and chips."""
    exchanges, target = executable.analysis.exchanges, executable.target
    n_distinct = len(exchanges.distinct)
    for rows, n in (
        (exchanges.row_of_step, len(executable.steps)),
        (exchanges.row_of_set, len(executable.compute_sets)),
        (exchanges.n_uses, n_distinct),
    ):
        is_whole = rows.shape == (n,) and rows.dtype == np.int64
        _require(is_whole, "the exchanges are malformed")
    _check_range(exchanges.row_of_step + 1, n_distinct + 1, "exchanges of steps lead nowhere")
    _check_range(exchanges.row_of_set, n_distinct, "exchanges of compute sets lead nowhere")
    shapes = ((target.n_tiles,), (target.n_ipus, target.n_ipus))
    fits = all(
        column.shape in shapes and column.dtype.kind in "iub"
        for exchange in exchanges.distinct
        for column in exchange_columns(exchange)
    )
    _require(fits, "the exchanges are malformed")


def _check_cost_rows(executable: Executable) -> None:
    """What reports read: rows of tiles, vertices and links exist for every step."""
    costs, n_steps = executable.analysis.costs, len(executable.steps)
    for array in (costs.link_exchange, costs.host_exchange):
        _require(array.shape == costs.sync.shape, "the costs are malformed")
    for array in (costs.n_flops, costs.peak_cycles, costs.tile_row, costs.compute_set_of_step):
        _require(array.shape == (n_steps,), "the costs are malformed")
    _check_set_costs(executable)
    n_rows = len(costs.compute_tiles)
    for array in (costs.compute_tiles, costs.busy_tiles, costs.exchange_tiles):
        _require(array.shape == (n_rows, executable.target.n_tiles), "costs of tiles are malformed")
    _check_range(costs.tile_row, n_rows, "costs of tiles lead nowhere")
    sets = costs.compute_set_of_step
    _check_range(sets + 1, len(costs.compute_sets) + 1, "costs of compute sets lead nowhere")
    _require(bool((sets[costs.needs_count] >= 0).all()), "counted steps have no compute set")
    loads = costs.link_loads
    _require(loads.row_of_step.shape == (n_steps,), "loads of links are malformed")
    _check_range(loads.row_of_step + 1, len(loads.start), "loads of links lead nowhere")
    is_sorted = bool((np.diff(loads.start) >= 0).all()) and int(loads.start[0]) == 0
    _require(
        is_sorted and int(loads.start[-1]) == len(loads.link) == len(loads.n_bytes),
        "loads of links are malformed",
    )


def _check_set_costs(executable: Executable) -> None:
    """Each compute set has a cost with columns of all tiles and a row for each of its tables."""
    costs, n_tiles = executable.analysis.costs.compute_sets, (executable.target.n_tiles,)
    _require(len(costs) == len(executable.compute_sets), "costs of compute sets are missing")
    fits = all(
        isinstance(cost, ComputeSetCost)
        and len(cost.tables) == len(compute_set.tables)
        and all(isinstance(table, TableCost) for table in cost.tables)
        and cost.tile_cycles.shape == cost.busy_cycles.shape == n_tiles
        for cost, compute_set in zip(costs, executable.compute_sets, strict=True)
    )
    _require(fits, "costs of compute sets are malformed")


def _check_range(values: np.ndarray, limit: int, what: str) -> None:
    _require(bool(((values >= 0) & (values < limit)).all()), what)


class _Limits:
    """The smallest and largest value of each column, found once: many records share columns."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}  # by id: the executable keeps them alive

    def of(self, column: np.ndarray) -> tuple[int, int]:
        if not column.size:
            return 0, 0
        result = self._known.get(id(column))
        if result is None:
            result = self._known[id(column)] = int(column.min()), int(column.max())
        return result

    def check_range(self, column: np.ndarray, limit: int, what: str) -> None:
        least, most = self.of(column)
        _require(not column.size or (least >= 0 and most < limit), what)


def _check_runs(runs: Runs, n_elems: int, limits: _Limits, what: str) -> None:
    for column in runs:
        _require(column.dtype == np.int64 and column.shape == runs.start.shape[:1], what)
    start, count, stride = (limits.of(column) for column in runs)
    # Nearly all runs end inside even if the longest began last with the widest stride.
    if min(start[0], count[0], stride[0]) >= 0 and start[1] + stride[1] * count[1] < n_elems:
        return
    # Bounds that no legal run exceeds, and within which the sum below cannot overflow.
    is_sane = (np.abs(runs.stride) <= n_elems) & ((runs.count <= n_elems) | (runs.stride == 0))
    _require(bool((is_sane | (runs.count <= 1)).all()), what)
    last = runs.start + runs.stride * np.maximum(runs.count - 1, 0)
    inside = (np.minimum(runs.start, last) >= 0) & (np.maximum(runs.start, last) < n_elems)
    _require(bool((inside | (runs.count == 0)).all()) and bool((runs.count >= 0).all()), what)


def _check_copies(executable: Executable, limits: _Limits) -> None:
    copies = [
        *executable.copies,
        *(c for cs in executable.compute_sets for c in (*cs.gathers, *cs.scatters)),
    ]
    for copy in copies:
        _require(isinstance(copy, CopyPlan) and copy.n_bytes in (1, 2, 4, 8), "a copy is malformed")
        n_elems = executable.n_arena_bytes // copy.n_bytes
        counts = copy.source.count, copy.destination.count
        _require(counts[0] is counts[1] or np.array_equal(*counts), "a copy is uneven")
        for runs in (copy.source, copy.destination):
            _check_runs(runs, n_elems, limits, "a copy leaves the memory")


def _check_tables(executable: Executable, limits: _Limits) -> None:
    for compute_set in executable.compute_sets:
        for table in compute_set.tables:
            _check_range(
                np.array([table.codelet]), len(executable.codelet_forms), "no such codelet"
            )
            _check_table(table, executable, limits)


def _check_table(table: TableRecord, executable: Executable, limits: _Limits) -> None:
    spec = executable.codelets[table.codelet].spec
    columns = columns_of(spec.fields)
    limits.check_range(table.tile, executable.target.n_tiles, "a vertex is on a missing tile")
    is_state = {c.index for c in columns if c.role == "value" and not c.field.is_const}
    _require(is_state == set(table.state_columns), "a vertex table has the wrong state")
    n_columns = len(columns) + spec.has_worker_state
    _require(n_columns == len(table.columns), "a vertex table has missing columns")
    if spec.has_worker_state:
        _check_worker_states(spec, table, executable)
    start = np.zeros(0, np.int64)
    offset = start
    for column in columns:
        values = table.columns[column.index]
        _require(values.dtype == column.dtype, "a column has the wrong type")
        is_list = column.field.kind in (
            FieldKind.VECTOR_LIST,
            FieldKind.SCALAR_LIST,
            FieldKind.STATE_VECTOR,
        )
        if column.role == "start":
            start = values
            _require(
                len(start) == table.n_rows + 1
                and start[0] == 0
                and bool((np.diff(start) >= 0).all()),
                "a list column is not ascending",
            )
            continue
        expected = int(start[-1]) if is_list and column.role != "metadata" else table.n_rows
        _require(len(values) == expected, "a column has the wrong length")
        n_elems = executable.n_arena_bytes // column.field.type.n_bytes
        if column.role == "offset":
            offset = values
            limits.check_range(values, n_elems, "a field lies outside the memory")
        elif column.role == "length":
            limits.check_range(values, n_elems + 1, "a field is too long")
            if limits.of(offset)[1] + limits.of(values)[1] > n_elems:
                _check_range(offset + values, n_elems + 1, "a field reaches outside the memory")
        elif column.role == "metadata":
            limits.check_range(values, executable.n_arena_bytes, "metadata lies outside the memory")


def _check_worker_states(spec: CodeletSpec, table: TableRecord, executable: Executable) -> None:
    values = table.columns[-1]
    _require(values.dtype == np.int64 and len(values) == table.n_rows, "a column is malformed")
    n_tiles, n_workers, n_words = states_shape(executable.target)
    record, rest = np.divmod(values - executable.worker_states_byte // WORD_BYTES, n_words)
    n_used = n_workers if spec.base is VertexBase.MULTI_VERTEX else 1
    _check_range(record, n_tiles * n_workers - n_used + 1, "a worker is missing")
    _require(not rest.any(), "a worker's record is misplaced")


def _check_views(executable: Executable, limits: _Limits) -> None:
    host = executable.host
    views: list[View] = [
        *host.writes.values(),
        *host.reads.values(),
        *(v for step in executable.steps for v in (*step.reads, *step.writes)),
        *(initial.view for initial in executable.initial_values),
    ]
    for view in views:
        n_elems = executable.n_arena_bytes // view.type.n_bytes
        _check_runs(view.runs, n_elems, limits, "a tensor lies outside")
        _require(view.n_elems == math.prod(view.shape), "a tensor's shape is wrong")
        in_order = list(range(len(view.shape)))
        _require(sorted(view.order) in ([], in_order), "a tensor's order is wrong")
    for initial in executable.initial_values:
        fits = initial.values.dtype == initial.view.type.dtype
        _require(fits and initial.values.size == initial.view.n_elems, "initial values do not fit")
    for stream in host.streams.values():
        _require(
            stream.n_elements > 0 and as_type(stream.type_name).n_bytes > 0, "a stream is empty"
        )
    for buffer in host.buffers.values():
        _require(buffer.n_elements > 0 and buffer.repeats > 0, "a remote buffer is empty")
