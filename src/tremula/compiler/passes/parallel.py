"""Independent work on several threads: NumPy releases the interpreter lock on large columns."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tremula.base.processes import n_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

# Each thread holds the temporary columns of one compute set or copy, which can be large.
_MAX_THREADS = 8


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What `function` makes of each item, in order; the first error in that order is raised."""
    items = list(items)
    n_threads = min(n_cores(), len(items), _MAX_THREADS)
    if n_threads < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(function, items))
