"""Batches made ahead of their use, in threads, in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Work], Result], work: Iterable[Work], n_threads: int
) -> Iterator[Result]:
    """function(item) for each item, in order; each thread is up to two items ahead.

    An error of the function comes out where its result would have. Threads end with the iterator.
    """
    with ThreadPoolExecutor(n_threads, thread_name_prefix="tremula-feed") as pool:
        items = iter(work)
        waiting: deque[Future[Result]] = deque(
            pool.submit(function, item) for item in islice(items, 2 * n_threads)
        )
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(function, item) for item in islice(items, 1))
                yield result
        finally:
            for future in waiting:
                future.cancel()
