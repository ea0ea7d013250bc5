"""Values that were used last, shared by threads: `RecentValues`."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentValues(Generic[Key, Value]):
    """The most recently used values by key, as many as fit; the newest one is always there.

    `size` measures a value, and `limit` is for the sum of sizes: by default, a number of values.
    """

    def __init__(self, limit: int, size: Callable[[Value], int] = lambda _value: 1):
        self._limit, self._size = limit, size
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key, made now if it is not there. Threads may do so at once."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            total = sum(map(self._size, self._values.values()))
            while total > self._limit and len(self._values) > 1:
                total -= self._size(self._values.popitem(last=False)[1])
        return value
