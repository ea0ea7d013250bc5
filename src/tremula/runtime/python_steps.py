"""Compute steps counted for their cycles: run once by Python with counting kernels."""

import numpy as np

from tremula.compiler.executable.records import ComputeSetRecord
from tremula.compiler.report.report import CountedStep
from tremula.runtime import native_rows
from tremula.runtime.loaded import LoadedProgram


def run_counted(loaded: LoadedProgram, step: int, pc: int) -> None:
    """Run a compute step with its counting kernels, and give the clock what they counted."""
    executable = loaded.executable
    number = executable.steps[step].compute_set
    compute_set = executable.compute_sets[number]
    counts: list[np.ndarray | None] = []
    for replica in range(loaded.n_replicas):
        counts, result = _run_counting(loaded, number, compute_set, replica)
        store_result(loaded, pc, replica, result)
    tiles = [table.tile for table in compute_set.tables]
    costs = executable.analysis.costs
    tile_cycles = costs.compute_from_counts(number, tiles, counts)
    table_cycles = tuple(-1 if c is None else int(c.sum()) for c in counts)
    counted = CountedStep(tile_cycles, table_cycles)
    loaded.clock.set_counted(step, counted, executable.target.tiles_per_ipu)
    loaded.clock.advance(step)


def _run_counting(
    loaded: LoadedProgram, number: int, compute_set: ComputeSetRecord, replica: int
) -> tuple[list[np.ndarray | None], int]:
    first, last = loaded.tables.sets[number, :2]
    native_rows.run_copies(loaded, number, replica, is_gather=True)
    counts: list[np.ndarray | None] = []
    result = 1
    for table, record in zip(range(first, last), compute_set.tables, strict=True):
        if record.is_costed:
            result &= native_rows.run_rows(loaded, table, replica, np.arange(record.n_rows))
            counts.append(None)
        else:
            cycles = np.zeros(record.n_rows, np.int64)
            codelet = loaded.executable.codelets[record.codelet]
            has_modes = codelet.spec.rounds_to_half and loaded.machine_state.rounding_mode != 0
            n_workers = loaded.executable.target.chip.n_workers
            kernel = codelet.counted_kernel_address(has_modes=has_modes, n_workers=n_workers)
            result &= native_rows.run_counted(loaded, kernel, table, replica, cycles)
            counts.append(cycles)
    native_rows.run_copies(loaded, number, replica, is_gather=False)
    return counts, result


def store_result(loaded: LoadedProgram, pc: int, replica: int, result: int) -> None:
    """Write the AND of what vertices returned to the flag of Execute(cs, flag)."""
    address, n_bytes = loaded.executable.code[pc, 2], loaded.executable.code[pc, 3]
    if address >= 0:
        arena = loaded.storage.arenas[replica]
        arena[address : address + n_bytes] = 0
        arena[address] = result
