"""Native helpers for steps that Python drives: ranges of rows, single copies."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

import numpy as np
from numba import njit

from tremula.runtime.interpreter import call_kernel, run_copy
from tremula.runtime.loaded import LoadedProgram


@njit(cache=True)
def _run_in_order(kernel, arena, columns, rows):
    result = 1
    for row in rows:
        result &= call_kernel(kernel, arena, columns, row, row + 1)
    return result


@njit(cache=True)
def _run_copies(arena, rows, info, first, last):
    for copy in range(first, last):
        run_copy(arena, rows, info, copy)


def run_copies(loaded: LoadedProgram, compute_set: int, replica: int, *, is_gather: bool) -> None:
    """The gathers before a compute set's kernels, or the scatters after them."""
    first, last = (
        loaded.tables.sets[compute_set, 2:4] if is_gather else loaded.tables.sets[compute_set, 4:6]
    )
    storage, tables = loaded.storage, loaded.tables
    _run_copies(storage.addresses[replica], tables.copy_rows, tables.copy_info, first, last)


def run_rows(loaded: LoadedProgram, table: int, replica: int, rows: np.ndarray) -> int:
    """Run rows of a table one after another in the given order."""
    tables = loaded.tables
    return _run_in_order(
        tables.kernel[table],
        loaded.storage.addresses[replica],
        tables.columns[replica, table],
        rows,
    )
