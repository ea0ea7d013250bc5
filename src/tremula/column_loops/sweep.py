"""Sequential sweeps over columns: Python for a few short ones, native code beyond.

A sweep is a loop whose iterations depend on earlier ones, which NumPy cannot express, or one that
NumPy expresses only in many passes over the columns. Small programs need no native code at all.
Native code runs alongside other threads.
"""

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any

import numpy as np

from tremula.column_loops.native import NativeSweep

# Iterations of its innermost loop that a sweep runs in Python, over all calls: about 10 ms.
TURNS_IN_PYTHON = 20_000
# Iterations in Python of a sweep that only Numba compiles: about half a second.
TURNS_BEFORE_NUMBA = 300_000


class Sweep:
    """A loop over columns, and about how many turns it takes for given ones."""

    def __init__(self, function: Callable[..., Any], n_turns: Callable[..., int]):
        update_wrapper(self, function)
        self.function, self._n_turns, self._n_spent = function, n_turns, 0

    def __call__(self, *columns: object) -> Any:  # noqa: ANN401 - as the function says
        most = self._turns_in_python()
        if self._n_spent <= most:
            self._n_spent += self._n_turns(*columns)
        return (self.function if self._n_spent <= most else self.native)(*columns)

    def _turns_in_python(self) -> int:
        return TURNS_IN_PYTHON

    @cached_property
    def native(self) -> Callable[..., Any]:
        """The function compiled by a C compiler, or loaded from the cache."""
        return NativeSweep(self.function, lambda: self.by_numba)

    @cached_property
    def by_numba(self) -> Callable[..., Any]:
        """The function compiled by Numba, where there is no C compiler."""
        from tremula.codelets.native.stored_code import jit  # slow to load

        return jit(nogil=True)(self.function)


class NumbaSweep(Sweep):
    """A sweep that calls functions and takes tuples, which C does not have: Numba compiles it.

    That takes seconds once per machine. Functions that it calls are `register_jitable`.
    """

    def _turns_in_python(self) -> int:
        return TURNS_BEFORE_NUMBA

    @cached_property
    def native(self) -> Callable[..., Any]:
        return self.by_numba


def n_elements(*columns: np.ndarray | int) -> int:
    """Of all columns together: about the turns of a sweep that looks at each a few times."""
    return sum(column.size for column in columns if not isinstance(column, int))


def sweep(n_turns: Callable[..., int]) -> Callable[[Callable[..., Any]], Sweep]:
    """A function as a sweep: `n_turns` says how many turns given columns take."""
    return lambda function: Sweep(function, n_turns)
