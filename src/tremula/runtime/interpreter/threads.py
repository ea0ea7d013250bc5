"""What each thread of the pool runs: a part of a large table, or of a large copy."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

from functools import cache
from typing import Any

from tremula.codelets.native.stored_code import callback
from tremula.runtime.interpreter import record
from tremula.runtime.interpreter.compute_sets import run_rows
from tremula.runtime.interpreter.copies import copy_rows
from tremula.runtime.interpreter.instructions import read, write


def _run_part(machine, part, n_parts):
    """One chunk of a table, or an equal share of a copy's rows."""
    kernel, arena = read(machine, record.PART_KERNEL), read(machine, record.PART_ARENA)
    first = read(machine, record.PART_FIRST)
    if kernel != 0:
        bounds, columns = read(machine, record.BOUNDS), read(machine, record.PART_COLUMNS)
        begin, end = read(bounds, first + part), read(bounds, first + part + 1)
        counter, cycles = read(machine, record.PART_COUNTER), read(machine, record.PART_CYCLES)
        result = run_rows(kernel, counter, arena, columns, begin, end, cycles)
        write(read(machine, record.PART_RESULTS), part, result)
    else:
        n_rows = read(machine, record.PART_N_ROWS)
        item_bytes = read(machine, record.PART_ITEM_BYTES)
        begin, end = part * n_rows // n_parts, (part + 1) * n_rows // n_parts
        copy_rows(arena, read(machine, record.COPY_ROWS), first + begin, first + end, item_bytes)
    return 0


@cache
def run_part() -> Any:
    """The function, by address, that runs one part of what PART_… slots say."""
    signature = "int64(int64, int64, int64)"
    return callback(signature, nogil=True, error_model="numpy")(_run_part)
