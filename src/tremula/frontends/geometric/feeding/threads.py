"""Batches made ahead of their use, in threads, in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Work], Result],
    work: Iterable[Work],
    n_threads: int,
    announce: Callable[[Result, Result], object] | None = None,
) -> Iterator[Result]:
    """function(item) for each item, in order; each thread is up to two items ahead.

    `announce(result, following)` hears of a result that is ready while the one before it is used.
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
                if announce is not None and waiting and _is_ready(waiting[0]):
                    announce(result, waiting[0].result())
                yield result
        finally:
            for future in waiting:
                future.cancel()


def _is_ready(future: Future) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
