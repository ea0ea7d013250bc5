"""The record through which the interpreter finds a loaded program: see interpreter/record.py."""

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.runtime.clock import Clock
from tremula.runtime.counting import CountedSteps
from tremula.runtime.history import EVENTS_PER_RETURN
from tremula.runtime.interpreter import record
from tremula.runtime.interpreter.counting import count_step
from tremula.runtime.interpreter.threads import run_part
from tremula.runtime.storage import NativeTables, Storage


def address_of(column: np.ndarray, dtype: type = np.int64) -> int:
    """The address of a column, which must lie in memory as the interpreter reads it."""
    assert column.dtype == dtype, column.dtype
    assert column.flags.c_contiguous
    return column.ctypes.data


class NativeMachine:
    """Where the interpreter finds code, tables and clock. Owns the columns no one else does."""

    def __init__(
        self, executable: Executable, tables: NativeTables, storage: Storage, n_threads: int
    ):
        # Copies: arrays read from a file need not lie in memory as they are read.
        self._code, self._step_of, self._cases, self._arenas = (
            np.array(column, np.int64, order="C")
            for column in (
                executable.code,
                executable.step_of,
                executable.switch_cases,
                storage.addresses,
            )
        )
        info = tables.copy_info
        self._buffer = np.empty(max(1, int((info[:, 4] * info[:, 3]).max(initial=0))), np.uint8)
        n_parts = max(record.COPY_CHUNKS, int(tables.n_chunks.max(initial=0)))
        self._results = np.ones(n_parts, np.int64)
        self.record = np.zeros(record.N_SLOTS, np.int64)
        self._log = np.zeros(0, np.int64)
        self._fill(
            {
                record.CODE: address_of(self._code),
                record.CODE_WORDS: self._code.shape[1],
                record.STEP_OF: address_of(self._step_of),
                record.CASES: address_of(self._cases),
                record.ARENAS: address_of(self._arenas),
                record.N_REPLICAS: len(self._arenas),
                record.BUFFER: address_of(self._buffer, np.uint8),
                record.N_WORKERS: executable.target.chip.n_workers,
                record.CHIP_TILES: executable.target.tiles_per_ipu,
                record.PART_RESULTS: address_of(self._results),
                **_table_slots(tables),
            }
        )
        self._n_threads = n_threads if _has_large_work(tables) else 1

    @property
    def address(self) -> int:
        return self.record.ctypes.data

    def _fill(self, values: dict[int, int]) -> None:
        self.record[list(values)] = list(values.values())

    def use_threads(self) -> None:
        """Give the thread that runs programs its helpers, if there is work for them."""
        if self._n_threads > 1:
            from tremula.codelets.native import thread_pool  # imports Numba

            n_threads = min(self._n_threads, thread_pool.max_threads())
            self._fill(
                {
                    record.RUN_PARTS: thread_pool.run_address(),
                    record.POOL: thread_pool.pool_address(n_threads),
                    record.N_THREADS: n_threads,
                    record.RUN_PART: run_part().address,
                }
            )

    def set_run(self, registers: np.ndarray, counters: np.ndarray, call_stack: np.ndarray) -> None:
        """The state of one run of a program."""
        self._fill(
            {
                record.REGISTERS: address_of(registers),
                record.COUNTERS: address_of(counters),
                record.CALL_STACK: address_of(call_stack),
            }
        )

    def set_clock(self, clock: Clock, stops: np.ndarray) -> None:
        """The modelled clock, and the steps to come back for: what Python runs changes both."""
        self._fill(
            {
                record.CLOCK: address_of(clock.cycles_of_chip),
                record.N_CHIPS: len(clock.cycles_of_chip),
                record.EXECUTED: address_of(clock.executed),
                record.CYCLES: address_of(clock.step_cycles),
                record.COMPUTE: address_of(clock.compute),
                record.SLOT_OF_STEP: address_of(clock.counted_steps.slot_of_step),
                record.JOINS: address_of(clock.joins, np.bool_),
                record.IS_ACTIVE: address_of(clock.is_active, np.bool_),
                record.STOPS: address_of(stops, np.bool_),
                **self._log_slots(clock),
            }
        )
        counted = clock.counted_steps
        if counted.is_ready[counted.steps].any():
            self._count_with(counted)

    def _log_slots(self, clock: Clock) -> dict[int, int]:
        """Where branches and counted steps are recorded, if they are."""
        if clock.records and not len(self._log):
            room = max(EVENTS_PER_RETURN, 2 * len(clock.cycles_of_chip))
            self._log = np.zeros(room, np.int64)
        size = len(self._log) if clock.records else 0
        log = address_of(self._log)
        return {record.LOG: log, record.LOG_SIZE: size, record.LOG_AT: 0}

    def recorded(self) -> np.ndarray:
        """What the interpreter recorded since `set_clock`."""
        return self._log[: self.record[record.LOG_AT]]

    def count_step(self, clock: Clock, pc: int) -> None:
        """Run the step at an instruction with counting kernels, which must be there."""
        self._count_with(clock.counted_steps)
        count_step().ctypes(self.address, pc)

    def _count_with(self, counted: CountedSteps) -> None:
        self._counting = np.array([address_of(c) for c in counted.columns()], np.int64)
        self._fill(
            {
                record.COUNTING: address_of(self._counting),
                record.COUNT_STEP: count_step().address,
            }
        )


def _table_slots(tables: NativeTables) -> dict[int, int]:
    return {
        record.KERNEL: address_of(tables.kernel),
        record.COLUMNS: address_of(tables.columns),
        record.N_TABLES: tables.columns.shape[1],
        record.N_ROWS: address_of(tables.n_rows),
        record.CHUNK_FIRST: address_of(tables.chunk_first),
        record.N_CHUNKS: address_of(tables.n_chunks),
        record.BOUNDS: address_of(tables.bounds),
        record.SETS: address_of(tables.sets),
        record.COPY_ROWS: address_of(tables.copy_rows),
        record.COPY_INFO: address_of(tables.copy_info),
    }


def _has_large_work(tables: NativeTables) -> bool:
    """True if a table or copy is large enough for threads."""
    info = tables.copy_info
    is_large = info[:, 4] >= record.PARALLEL_COPY_BYTES
    is_large &= info[:, 1] - info[:, 0] >= record.COPY_CHUNKS
    return bool((tables.n_chunks > 1).any() or (is_large & (info[:, 3] == 0)).any())
