"""Storage: the arenas of all replicas, the state of their vertices, the interpreter's tables."""

from dataclasses import dataclass

import numpy as np

from tremula.base.errors import StreamConnectionError
from tremula.base.floats import QuarterFormat, unpack_metadata
from tremula.base.types import QUARTER, as_type
from tremula.codelets.columns import columns_of
from tremula.codelets.cpp.codelet import prepare_kernels
from tremula.codelets.python.random import MODE_WORD, STATE_WORDS, seeds_of
from tremula.codelets.spec import Codelet, CodeletSpec, FieldKind, FieldSpec
from tremula.column_loops.quarter_casts import decoded, encoded
from tremula.compiler.executable.executable import Executable
from tremula.compiler.executable.records import TableRecord, View
from tremula.compiler.program_ir import CopyPlan
from tremula.compiler.worker_states import n_states_bytes, states_shape
from tremula.poplar.tensors.variables import ALIGNMENT_BYTES
from tremula.runtime.row_order import in_order_of_memory

# A table stays on one thread if its fields have fewer elements than this in all, and its vertices
# fewer modelled cycles: waking the others costs about as much as that work (measured: a parallel
# region takes 5 to 20 microseconds). Elements show code that streams, cycles show code that
# computes (measured: of Monte Carlo paths this computer does about one cycle in a nanosecond).
PARALLEL_ELEMENTS = 32_768
PARALLEL_CYCLES = 262_144


class Storage:
    """One arena per replica, laid out exactly as the graph's address space."""

    def __init__(self, executable: Executable, seed: int = 0):
        self.seed = seed
        self.n_bytes = -(-executable.n_arena_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.arenas = [_aligned_zeros(self.n_bytes) for _ in range(executable.replication_factor)]
        self.executable = executable
        self.reset()

    @property
    def addresses(self) -> np.ndarray:
        return np.array([a.ctypes.data for a in self.arenas], np.int64)

    def reset(self) -> None:
        """Write all initial values; every worker of every replica gets its own random state."""
        n_tiles, n_workers, _ = states_shape(self.executable.target)
        seeds = seeds_of(self.seed, len(self.arenas) * n_tiles * n_workers)
        seeds = seeds.reshape(len(self.arenas), n_tiles, n_workers, STATE_WORDS)
        for replica in range(len(self.arenas)):
            for initial in self.executable.initial_values:
                self.write(initial.view, initial.values, replica)
            self.worker_states(replica)[..., :STATE_WORDS] = seeds[replica]
            self.worker_states(replica)[..., MODE_WORD] = 0
            at = self.executable.replica_index_byte
            if at >= 0:
                self.arenas[replica][at : at + 4].view(np.uint32)[0] = replica

    def worker_states(self, replica: int) -> np.ndarray:
        """uint64[n_tiles, n_workers, WORKER_WORDS]: the records of all workers, as a view."""
        begin, target = self.executable.worker_states_byte, self.executable.target
        memory = self.arenas[replica][begin : begin + n_states_bytes(target)]
        return memory.view(np.uint64).reshape(states_shape(target))

    def read_seeds(self, replica: int) -> np.ndarray:
        """uint32[n_tiles, n_workers, 4]: a copy of the state of every worker of the chip."""
        n_workers = self.executable.target.chip.n_workers
        words = self.worker_states(replica)[:, :n_workers, :STATE_WORDS]
        return np.ascontiguousarray(words).view(np.uint32)

    def write_seeds(self, seeds: np.ndarray, replica: int) -> None:
        n_workers = self.executable.target.chip.n_workers
        words = np.ascontiguousarray(seeds, np.uint32).view(np.uint64)
        states = self.worker_states(replica)
        states[:, :n_workers, :STATE_WORDS] = words.reshape(len(states), n_workers, STATE_WORDS)

    def read(self, view: View, replica: int = 0) -> np.ndarray:
        """A copy of a tensor's values; of 8-bit floats, their codes."""
        typed = self.arenas[replica].view(view.type.dtype)
        values = typed[_index(view)]
        if view.order:
            turned = values.reshape([view.shape[d] for d in view.order])
            values = turned.transpose(np.argsort(view.order))
        return values.reshape(view.shape).copy()

    def read_values(self, view: View, replica: int = 0) -> np.ndarray:
        """A copy of a tensor's values; 8-bit floats as float32."""
        values = self.read(view, replica)
        return values if view.metadata_byte < 0 else decoded(values, *self._metadata(view, replica))

    def write(self, view: View, values: np.ndarray, replica: int = 0) -> None:
        """Write a tensor; floats written to 8-bit floats are rounded as their metadata says."""
        if view.metadata_byte >= 0 and values.dtype.kind == "f":
            values = encoded(values, *self._metadata(view, replica))
        typed = self.arenas[replica].view(view.type.dtype)
        if view.order:
            values = values.reshape(view.shape).transpose(view.order)
        typed[_index(view)] = values.ravel()

    def _metadata(self, view: View, replica: int) -> tuple[QuarterFormat, int]:
        return unpack_metadata(int(self.arenas[replica][view.metadata_byte]))


def _index(view: View) -> "slice | np.ndarray":
    start, count, stride = view.runs
    if len(start) == 1 and (stride[0] == 1 or count[0] == 1):
        return slice(int(start[0]), int(start[0] + count[0]))
    return view.runs.addresses()


def _aligned_zeros(n_bytes: int) -> np.ndarray:
    raw = np.zeros(n_bytes + ALIGNMENT_BYTES, np.uint8)
    shift = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[shift : shift + n_bytes]


def host_array(view_type_name: str, n_elems: int, data: object, what: str) -> np.ndarray:
    """Host data as a flat array of the device's type, or an error that says what did not fit."""
    dtype = as_type(view_type_name).dtype
    values = np.asarray(data)
    if values.size != n_elems:
        raise StreamConnectionError(
            f"{what} takes {n_elems} elements, got {values.size} (shape {list(values.shape)}).",
            hint="give exactly as many elements as the tensor has",
        )
    if view_type_name == QUARTER.name and values.dtype.kind == "f":
        return values.ravel()  # rounded when it is written, by the tensor's metadata
    if values.dtype != dtype and not np.can_cast(values.dtype, dtype, "same_kind"):
        raise StreamConnectionError(
            f"{what} has type {view_type_name}, got {values.dtype}.",
            hint=f"convert with .astype(np.{dtype.name})",
        )
    return values.astype(dtype, copy=False).ravel()


@dataclass(slots=True)
class NativeTables:
    """Vertex tables and copies as the interpreter wants them. Owns all memory it points into."""

    kernel: np.ndarray  # int64[n_tables]: addresses
    columns: np.ndarray  # int64[n_replicas, n_tables]: addresses of pointer lists
    n_rows: np.ndarray
    chunk_first: np.ndarray
    n_chunks: np.ndarray
    bounds: np.ndarray
    sets: np.ndarray  # int64[n_compute_sets, 6]: see interpreter/record.py
    copy_rows: np.ndarray  # int64[n, 5]
    copy_info: np.ndarray  # int64[n_copies, 5]
    alive: list  # arrays and codelets that must outlive the addresses
    table_columns: list[list[tuple[np.ndarray, ...]]]  # [replica][table]
    codelet_of: list[Codelet]  # of each table
    n_workers: int  # that share a MultiVertex

    def use_modes(self, has_modes: bool) -> None:
        """Let tables that round halves run with or without rounding modes."""
        for table, codelet in enumerate(self.codelet_of):
            if codelet.spec.rounds_to_half:
                self.kernel[table] = codelet.kernel_address(
                    has_modes=has_modes, n_workers=self.n_workers
                )


def build_tables(executable: Executable, n_threads: int) -> NativeTables:
    """Compile the kernels and lay out everything the interpreter reads."""
    codelets = executable.codelets
    records = [
        in_order_of_memory(table, codelets[table.codelet].spec)
        for compute_set in executable.compute_sets
        for table in compute_set.tables
    ]
    n_workers = executable.target.chip.n_workers
    prepare_kernels((codelets[t.codelet] for t in records), is_counted=False, n_workers=n_workers)
    addresses = [codelets[t.codelet].kernel_address(n_workers=n_workers) for t in records]
    kernel = np.array(addresses, np.int64)
    alive: list = [codelets]
    table_columns = [
        [_own_columns(t) for t in records] for _ in range(executable.replication_factor)
    ]
    pointers = np.zeros((executable.replication_factor, len(records)), np.int64)
    for replica, tables in enumerate(table_columns):
        for i, columns in enumerate(tables):
            listed = np.array([c.ctypes.data for c in columns] or [0], np.int64)
            alive.append(listed)
            pointers[replica, i] = listed.ctypes.data
    bounds = [
        _chunk_bounds(table, codelets[table.codelet].spec, cycles, n_threads)
        for table, cycles in zip(records, _table_cycles(executable), strict=True)
    ]
    n_chunks = np.array([len(b) - 1 for b in bounds], np.int64)
    first = np.concatenate(([0], np.cumsum(n_chunks + 1)))[:-1].astype(np.int64)
    copies, sets = _all_copies(executable)
    rows, info = _copy_tables(copies)
    return NativeTables(
        kernel,
        pointers,
        np.array([t.n_rows for t in records], np.int64),
        first,
        n_chunks,
        np.concatenate([*bounds, np.zeros(0, np.int64)]).astype(np.int64),
        sets,
        rows,
        info,
        alive,
        table_columns,
        [codelets[t.codelet] for t in records],
        n_workers,
    )


def _own_columns(table: TableRecord) -> tuple[np.ndarray, ...]:
    """Columns with their own copy of mutable state, for one replica."""
    return tuple(
        np.array(c) if i in table.state_columns else np.ascontiguousarray(c)
        for i, c in enumerate(table.columns)
    )


def _table_cycles(executable: Executable) -> list[int]:
    """Modelled cycles of all vertices of each table; 0 where only a run shows it."""
    costs = executable.analysis.costs
    cycles = [[0] * len(compute_set.tables) for compute_set in executable.compute_sets]
    for step, cost in zip(executable.steps, costs.compute_set_of_step.tolist(), strict=True):
        if step.compute_set >= 0 and cost >= 0:
            result = costs.compute_sets[cost].tables
            cycles[step.compute_set] = [max(0, table.total_cycles) for table in result]
    return [n for of_set in cycles for n in of_set]


def _chunk_bounds(table: TableRecord, spec: CodeletSpec, cycles: int, n_threads: int) -> np.ndarray:
    """Row boundaries of chunks with about equal work; one chunk if the table is small.

    Vertices of a tile that share its workers' states stay in one chunk and in order, so that
    random numbers do not depend on threads.
    """
    if n_threads < 2 or table.n_rows < 2:
        return np.array([0, table.n_rows], np.int64)
    ends = np.cumsum(_work(table, spec.fields))
    if ends[-1] < PARALLEL_ELEMENTS and cycles < PARALLEL_CYCLES:
        return np.array([0, table.n_rows], np.int64)
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, n_threads) / n_threads)
    if spec.has_worker_state:
        cuts = np.searchsorted(table.tile, table.tile[cuts], "left")
    return np.unique(np.concatenate(([0], cuts, [table.n_rows]))).astype(np.int64)


def _work(table: TableRecord, fields: tuple[FieldSpec, ...]) -> np.ndarray:
    """int64[n_rows]: elements each row touches."""
    work = np.ones(table.n_rows, np.int64)
    start = np.empty(0, np.int64)  # always replaced: a field's starts come before its lengths
    for column in columns_of(fields):
        values = table.columns[column.index]
        if column.role == "start":
            start = values
            work = work + np.diff(values)
        elif column.role == "length" and column.field.kind is FieldKind.VECTOR_LIST:
            ends = np.concatenate(([0], np.cumsum(values)))
            work = work + ends[start[1:]] - ends[start[:-1]]
        elif column.role == "length":
            work = work + values
    return work


def _all_copies(executable: Executable) -> tuple[list[CopyPlan], np.ndarray]:
    """All copies, those of programs first, and the table and copy ranges of each compute set."""
    copies = list(executable.copies)
    sets = np.zeros((len(executable.compute_sets), 6), np.int64)
    first_table = 0
    for i, compute_set in enumerate(executable.compute_sets):
        first_gather = len(copies)
        copies.extend(compute_set.gathers)
        first_scatter = len(copies)
        copies.extend(compute_set.scatters)
        last_table = first_table + len(compute_set.tables)
        sets[i] = first_table, last_table, first_gather, first_scatter, first_scatter, len(copies)
        first_table = last_table
    return copies, sets


def _copy_tables(copies: list[CopyPlan]) -> tuple[np.ndarray, np.ndarray]:
    rows = [
        np.stack(
            [
                c.source.start,
                c.destination.start,
                c.source.count,
                c.source.stride,
                c.destination.stride,
            ],
            axis=1,
        )
        for c in copies
    ]
    ends = np.cumsum([len(r) for r in rows], dtype=np.int64)
    info = np.zeros((len(copies), 5), np.int64)
    for i, copy in enumerate(copies):
        n_bytes = copy.source.n_elems * copy.n_bytes
        info[i] = ends[i] - len(rows[i]), ends[i], copy.n_bytes, copy.overlaps, n_bytes
    return np.concatenate([*rows, np.zeros((0, 5), np.int64)]), info
