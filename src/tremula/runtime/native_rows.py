"""Native helpers for steps that Python drives: ranges of rows, counting kernels, single copies."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tremula.runtime.interpreter import call_kernel, run_copy
from tremula.runtime.loaded import LoadedProgram


@intrinsic
def _call_counted(typing_context, address, arena, columns, begin, end, cycles):
    """Call a counting kernel by its address."""

    def codegen(context, builder, signature, args):
        i64, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        i64_pointer = i64.as_pointer()
        kernel_type = ir.FunctionType(i64, [pointer, i64_pointer, i64, i64, i64_pointer])
        kernel = builder.inttoptr(args[0], kernel_type.as_pointer())
        arena = builder.inttoptr(args[1], pointer)
        columns, cycles = (builder.inttoptr(args[i], i64_pointer) for i in (2, 5))
        return builder.call(kernel, [arena, columns, args[3], args[4], cycles])

    return types.int64(*(types.int64,) * 6), codegen


@njit(cache=True)
def _run_one_counted(kernel, arena, columns, n_rows, cycles):
    return _call_counted(kernel, arena, columns, 0, n_rows, cycles)


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


def run_counted(
    loaded: LoadedProgram, kernel: int, table: int, replica: int, cycles: np.ndarray
) -> int:
    """Run a whole table with its counting kernel; fills `cycles`."""
    return _run_one_counted(
        kernel,
        loaded.storage.addresses[replica],
        loaded.tables.columns[replica, table],
        len(cycles),
        cycles.ctypes.data,
    )
