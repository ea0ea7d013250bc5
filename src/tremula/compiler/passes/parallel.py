"""Independent work on several threads: NumPy releases the interpreter lock on large columns."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tremula.base.processes import n_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

# Each thread holds the temporary columns of one compute set or copy, which can be large.
_MAX_THREADS = 8
# Threads with shorter columns would wait for each other's turn to run Python.
_LEAST_RUNS = 1 << 13


def in_parallel(
    function: Callable[[Item], Result], items: Iterable[Item], n_runs: Callable[[Item], int]
) -> list[Result]:
    """What `function` makes of each item, in order; the first error in that order is raised.

    `n_runs` says how long the columns of an item are, about: this thread does those with few.
    """
    items = list(items)
    large = [i for i, item in enumerate(items) if n_runs(item) >= _LEAST_RUNS]
    n_threads = min(n_cores(), len(large), _MAX_THREADS)
    if n_threads < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(n_threads) as pool:
        pending = {i: pool.submit(function, items[i]) for i in large}
        try:
            return [
                pending[i].result() if i in pending else function(item)
                for i, item in enumerate(items)
            ]
        finally:
            pool.shutdown(cancel_futures=True)
