"""A compute set: its copies and the kernels of its tables, large tables on several threads."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

import numpy as np

from tremula.runtime.interpreter import record
from tremula.runtime.interpreter.copies import run_copy, run_parts
from tremula.runtime.interpreter.instructions import (
    call_counted,
    call_kernel,
    inner,
    load_8,
    load_16,
    load_32,
    read,
    store_8,
    write,
)


@inner
def run_rows(kernel, counter, arena, columns, begin, end, cycles):
    """Run rows of a table, with its counting kernel if there is one."""
    if counter != 0:
        return call_counted(counter, arena, columns, begin, end, cycles)
    return call_kernel(kernel, arena, columns, begin, end)


@inner
def load_integer(address, n_bytes):
    """A little-endian scalar, sign-extended."""
    if n_bytes == 1:
        return load_8(address, 0)
    if n_bytes == 2:
        return load_16(address, 0)
    return load_32(address, 0) if n_bytes == 4 else read(address, 0)


@inner
def store_integer(address, n_bytes, value):
    """Store the lowest bytes of a number."""
    for i in range(n_bytes):
        store_8(address, i, value >> (8 * i))


@inner
def _run_table(machine, arena, columns, table, counts):
    """Run a table's kernel over all its rows, a large one on several threads."""
    kernel = read(read(machine, record.KERNEL), table)
    n_chunks = read(read(machine, record.N_CHUNKS), table)
    counter, cycles = np.int64(0), np.int64(0)
    if counts:
        counting = read(machine, record.COUNTING)
        counter = read(read(counting, record.COUNT_KERNEL), table)
        first = read(read(counting, record.ROW_FIRST), table)
        cycles = read(counting, record.ROW_CYCLES) + 8 * first
    if n_chunks < 2 or read(machine, record.RUN_PARTS) == 0:
        n_rows = read(read(machine, record.N_ROWS), table)
        return run_rows(kernel, counter, arena, columns, 0, n_rows, cycles)
    write(machine, record.PART_KERNEL, kernel)
    write(machine, record.PART_ARENA, arena)
    write(machine, record.PART_COLUMNS, columns)
    write(machine, record.PART_FIRST, read(read(machine, record.CHUNK_FIRST), table))
    write(machine, record.PART_COUNTER, counter)
    write(machine, record.PART_CYCLES, cycles)
    run_parts(machine, n_chunks)
    every = np.int64(1)
    for chunk in range(n_chunks):
        every &= read(read(machine, record.PART_RESULTS), chunk)
    return every


@inner
def run_compute_set(machine, arena, replica, compute_set, counts):
    """Gather, run the kernels, scatter. Returns the AND of what the vertices returned.

    If it `counts`, tables with a counting kernel fill their rows of ROW_CYCLES.
    """
    ranges = read(machine, record.SETS) + compute_set * 48
    columns = read(machine, record.COLUMNS) + 8 * replica * read(machine, record.N_TABLES)
    for copy in range(read(ranges, 2), read(ranges, 3)):
        run_copy(machine, arena, copy)
    result = np.int64(1)
    for table in range(read(ranges, 0), read(ranges, 1)):
        result &= _run_table(machine, arena, read(columns, table), table, counts)
    for copy in range(read(ranges, 4), read(ranges, 5)):
        run_copy(machine, arena, copy)
    return result
