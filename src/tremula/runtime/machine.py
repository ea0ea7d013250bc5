"""The record through which the interpreter finds a loaded program: see interpreter.REGISTERS."""

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.runtime import interpreter
from tremula.runtime.clock import Clock
from tremula.runtime.counting import CountedSteps
from tremula.runtime.history import EVENTS_PER_RETURN
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
        n_parts = max(interpreter.COPY_CHUNKS, int(tables.n_chunks.max(initial=0)))
        self._results = np.ones(n_parts, np.int64)
        self.record = np.zeros(interpreter.N_SLOTS, np.int64)
        self._log = np.zeros(0, np.int64)
        self._fill(
            {
                interpreter.CODE: address_of(self._code),
                interpreter.CODE_WORDS: self._code.shape[1],
                interpreter.STEP_OF: address_of(self._step_of),
                interpreter.CASES: address_of(self._cases),
                interpreter.ARENAS: address_of(self._arenas),
                interpreter.N_REPLICAS: len(self._arenas),
                interpreter.BUFFER: address_of(self._buffer, np.uint8),
                interpreter.N_WORKERS: executable.target.chip.n_workers,
                interpreter.CHIP_TILES: executable.target.tiles_per_ipu,
                interpreter.PART_RESULTS: address_of(self._results),
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
                    interpreter.RUN_PARTS: thread_pool.run_address(),
                    interpreter.POOL: thread_pool.pool_address(n_threads),
                    interpreter.N_THREADS: n_threads,
                    interpreter.RUN_PART: interpreter.run_part().address,
                }
            )

    def set_run(self, registers: np.ndarray, counters: np.ndarray, call_stack: np.ndarray) -> None:
        """The state of one run of a program."""
        self._fill(
            {
                interpreter.REGISTERS: address_of(registers),
                interpreter.COUNTERS: address_of(counters),
                interpreter.CALL_STACK: address_of(call_stack),
            }
        )

    def set_clock(self, clock: Clock, stops: np.ndarray) -> None:
        """The modelled clock, and the steps to come back for: what Python runs changes both."""
        self._fill(
            {
                interpreter.CLOCK: address_of(clock.cycles_of_chip),
                interpreter.N_CHIPS: len(clock.cycles_of_chip),
                interpreter.EXECUTED: address_of(clock.executed),
                interpreter.CYCLES: address_of(clock.step_cycles),
                interpreter.COMPUTE: address_of(clock.compute),
                interpreter.SLOT_OF_STEP: address_of(clock.counted_steps.slot_of_step),
                interpreter.JOINS: address_of(clock.joins, np.bool_),
                interpreter.IS_ACTIVE: address_of(clock.is_active, np.bool_),
                interpreter.STOPS: address_of(stops, np.bool_),
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
        return {interpreter.LOG: log, interpreter.LOG_SIZE: size, interpreter.LOG_AT: 0}

    def recorded(self) -> np.ndarray:
        """What the interpreter recorded since `set_clock`."""
        return self._log[: self.record[interpreter.LOG_AT]]

    def count_step(self, clock: Clock, pc: int) -> None:
        """Run the step at an instruction with counting kernels, which must be there."""
        self._count_with(clock.counted_steps)
        interpreter.count_step().ctypes(self.address, pc)

    def _count_with(self, counted: CountedSteps) -> None:
        self._counting = np.array([address_of(c) for c in counted.columns()], np.int64)
        self._fill(
            {
                interpreter.COUNTING: address_of(self._counting),
                interpreter.COUNT_STEP: interpreter.count_step().address,
            }
        )


def _table_slots(tables: NativeTables) -> dict[int, int]:
    return {
        interpreter.KERNEL: address_of(tables.kernel),
        interpreter.COLUMNS: address_of(tables.columns),
        interpreter.N_TABLES: tables.columns.shape[1],
        interpreter.N_ROWS: address_of(tables.n_rows),
        interpreter.CHUNK_FIRST: address_of(tables.chunk_first),
        interpreter.N_CHUNKS: address_of(tables.n_chunks),
        interpreter.BOUNDS: address_of(tables.bounds),
        interpreter.SETS: address_of(tables.sets),
        interpreter.COPY_ROWS: address_of(tables.copy_rows),
        interpreter.COPY_INFO: address_of(tables.copy_info),
    }


def _has_large_work(tables: NativeTables) -> bool:
    """True if a table or copy is large enough for threads."""
    info = tables.copy_info
    is_large = info[:, 4] >= interpreter.PARALLEL_COPY_BYTES
    is_large &= info[:, 1] - info[:, 0] >= interpreter.COPY_CHUNKS
    return bool((tables.n_chunks > 1).any() or (is_large & (info[:, 3] == 0)).any())
