"""Native helpers for steps that Python drives: ranges of rows, single copies."""

import numpy as np

from tremula.runtime import interpreter
from tremula.runtime.loaded import LoadedProgram


def run_copies(loaded: LoadedProgram, compute_set: int, replica: int, *, is_gather: bool) -> None:
    """The gathers before a compute set's kernels, or the scatters after them."""
    begin = 2 if is_gather else 4
    first, last = loaded.tables.sets[compute_set, begin : begin + 2]
    arena = loaded.storage.addresses[replica]
    interpreter.run_copies(loaded.machine.address, arena, first, last)


def run_rows(loaded: LoadedProgram, table: int, replica: int, rows: np.ndarray) -> int:
    """Run rows of a table one after another in the given order."""
    tables, rows = loaded.tables, np.ascontiguousarray(rows, np.int64)
    return interpreter.run_in_order(
        tables.kernel[table],
        loaded.storage.addresses[replica],
        tables.columns[replica, table],
        rows.ctypes.data,
        len(rows),
    )
