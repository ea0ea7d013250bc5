"""Short walks in Python, long ones as native code.

To compile the walk takes about eight seconds, once per machine, and to load it a second. Most
reports have a few thousand entries after loops are folded, which Python walks in less. So Python
begins, and native code continues from the state that it leaves.
"""

# Options of njit that its types do not name.
# pyright: reportCallIssue=false

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from tremula.vision.report.timeline import walk as plain

Ints = np.ndarray
Function = Callable[..., Any]

FEW_ENTRIES = 1 << 13  # entries × chips that Python walks in about a tenth of a second
_FEW_INSTRUCTIONS, _ALL_INSTRUCTIONS = 1 << 14, 1 << 62


class Twin:
    """A function that runs in Python where there is little to do, else as native code.

    `helpers` are the functions it calls, each after the ones that it calls itself.
    """

    def __init__(self, function: Function, types: str, helpers: tuple[Function, ...] = ()):
        self.function, self.types, self.helpers = function, types, helpers
        self._compiled: Function | None = None

    def chosen(self, n_entries: int) -> Function:
        """The function for this many entries × chips; native code if it is loaded in any case."""
        is_short = n_entries <= FEW_ENTRIES and self._compiled is None
        return self.function if is_short else self.native()

    def native(self) -> Function:
        """Native code, compiled once. Bounds are checked, for a file may be untrusted."""
        if self._compiled is None:
            self._compiled = self._compile()
        return self._compiled

    def _compile(self) -> Function:
        from numba import njit  # slow to load

        from tremula.codelets.native.stored_code import jit

        names = dict(self.function.__globals__)
        # Only compiled functions call a helper: wrappers for others take time.
        inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, boundscheck=True)
        for helper in self.helpers:
            names[helper.__name__] = inner(_with_globals(helper, names))
        compiled = jit(self.types, nogil=True, boundscheck=True, no_cfunc_wrapper=True)
        return compiled(_with_globals(self.function, names))


def _with_globals(function: Function, names: dict[str, Any]) -> FunctionType:
    return FunctionType(function.__code__, names, function.__name__)


WALK = Twin(
    plain.walk,
    "int64(int64[::1], int64[:, ::1], int64[::1], int64[::1], boolean, boolean, int64[:, ::1],"
    " int64)",
    plain.HELPERS,
)
WALK_BACK = Twin(
    plain.walk_back,
    "int64(int64[::1], int64[:, :, ::1], int64[::1], int64[:, ::1], int64, int64,"
    " int64[:, :, ::1], int64[:, ::1])",
)


def walk(
    script: Ints, runs: Ints, events: Ints, state: Ints, folds: bool, marks: bool, rows: Ints
) -> int:
    """Continue from a state until the rows are full or all runs are over; see `walk.walk`."""
    begin, n = WALK.chosen(0), 0
    if begin is plain.walk:
        first = rows[: max(1, FEW_ENTRIES // int(script[plain.N_CHIPS]))]
        with np.errstate(over="ignore"):  # native code wraps around
            n = begin(script, runs, events, state, folds, marks, first, _FEW_INSTRUCTIONS)
        is_over = not state[plain.IS_RUNNING] and state[plain.RUN] >= len(runs)
        if is_over or n == len(rows):
            return n
    go_on = WALK.native()
    return n + go_on(script, runs, events, state, folds, marks, rows[n:], _ALL_INSTRUCTIONS)


def walk_back(
    script: Ints, phases: Ints, events: Ints, rows: Ints, chip: int, of_step: Ints, of_place: Ints
) -> int:
    """Add what is on the critical path, from the last of the rows back; see `walk.walk_back`."""
    n = len(rows)
    run = WALK_BACK.chosen(n * int(script[plain.N_CHIPS]))
    with np.errstate(over="ignore"):
        return int(run(script, phases, events, rows, n, chip, of_step, of_place))
