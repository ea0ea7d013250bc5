"""Rows and copies that Python runs in an order it chose: strict mode."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

from tremula.codelets.native.stored_code import jit
from tremula.runtime.interpreter.copies import run_copy
from tremula.runtime.interpreter.instructions import call_kernel, read


@jit()
def run_in_order(kernel, arena, columns, rows, n_rows):
    """Run rows of a table one after another, in the order of the column `rows`."""
    result = 1
    for i in range(n_rows):
        row = read(rows, i)
        result &= call_kernel(kernel, arena, columns, row, row + 1)
    return result


@jit()
def run_copies(machine, arena, first, last):
    """Planned copies, one after another."""
    for copy in range(first, last):
        run_copy(machine, arena, copy)
