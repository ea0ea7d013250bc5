"""A limit of time for a block of Python code, by a signal."""

import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

_T = TypeVar("_T")


class OutOfTime(BaseException):
    """Code took longer than its limit; not an Exception, so that no library handles it."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `OutOfTime` in the block after some seconds; only in the main thread, and on POSIX."""
    if seconds is None or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def within(seconds: float | None, items: Iterable[_T]) -> Iterator[_T]:
    """Items as they come; `OutOfTime` when making them has taken longer than some seconds."""
    source, left_s = iter(items), seconds
    while True:
        began = time.perf_counter()
        with time_limit(left_s):
            try:
                item = next(source)
            except StopIteration:
                return
        if left_s is not None:
            left_s = max(left_s - (time.perf_counter() - began), 1e-3)  # 0 would be no limit
        yield item
