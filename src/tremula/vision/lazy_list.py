"""LazyList: a sequence whose items are made on access."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, overload

Item = TypeVar("Item")


class LazyList(Sequence[Item], Generic[Item]):
    """A read-only list that makes its items on access."""

    print_length = 10

    def __init__(self, n: int, make: Callable[[int], Item]):
        self._n, self._make = n, make

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, at: int) -> Item: ...

    @overload
    def __getitem__(self, at: slice) -> list[Item]: ...

    def __getitem__(self, at: int | slice) -> Item | list[Item]:
        if isinstance(at, slice):
            return [self._make(i) for i in range(*at.indices(self._n))]
        if not -self._n <= at < self._n:
            raise IndexError(f"index {at} of a list of {self._n}")
        return self._make(at % self._n)

    def __iter__(self) -> Iterator[Item]:
        return map(self._make, range(self._n))

    def __repr__(self) -> str:
        shown = ", ".join(repr(item) for item in self[: self.print_length])
        return f"[{shown}{', …' if self._n > self.print_length else ''}]"
