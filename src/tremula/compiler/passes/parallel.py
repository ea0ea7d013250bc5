"""Independent work on several threads: NumPy releases the interpreter lock on large columns."""

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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


def n_cores() -> int:
    """Threads this process may use: one a core it may run on, at most OMP_NUM_THREADS."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    stated = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]  # a list is one for each nesting
    return max(1, min(bound or 1, int(stated) if stated.isdigit() else sys.maxsize))
