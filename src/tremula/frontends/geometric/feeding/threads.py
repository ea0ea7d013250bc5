"""Batches made ahead of their use, in threads, in order; and one batch by several threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice, pairwise
from typing import TypeVar

from tremula.base.processes import SharedThreads

N_AHEAD = 2  # items that each thread is ahead
_MOST_SHARES = 8  # of one batch: more threads wait for memory, not for each other
Work = TypeVar("Work")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Work], Result],
    work: Iterable[Work],
    n_threads: int,
    announce: Callable[[Result, Result], object] | None = None,
) -> Iterator[Result]:
    """function(item) for each item, in order; each thread is up to `N_AHEAD` items ahead.

    `announce(result, following)` hears of a result that is ready while the one before it is used.
    An error of the function comes out where its result would have. Threads end with the iterator.
    """
    with ThreadPoolExecutor(n_threads, thread_name_prefix="tremula-feed") as pool:
        items = iter(work)
        waiting: deque[Future[Result]] = deque(
            pool.submit(function, item) for item in islice(items, N_AHEAD * n_threads)
        )
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(function, item) for item in islice(items, 1))
                if announce is not None and waiting and _is_ready(waiting[0]):
                    announce(result, waiting[0].result())
                yield result
        finally:
            for future in waiting:
                future.cancel()


def _is_ready(future: Future) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def shared_out(work: Callable[[slice], object], n: int) -> None:
    """work(part) for parts of 0 to n, side by side; it must hold no lock of Python to gain."""
    n_parts = min(n, os.cpu_count() or 1, _MOST_SHARES)
    ends = [n * part // n_parts for part in range(n_parts + 1)] if n else [0]
    parts = [slice(begin, end) for begin, end in pairwise(ends)]
    if len(parts) < 2:
        for part in parts:
            work(part)
    else:
        _helpers.run_all([partial(work, part) for part in parts])


_helpers = SharedThreads("tremula-fill", _MOST_SHARES)
