"""Repeated parts of a list of numbers, by its suffix array."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np


class RepeatedSteps(NamedTuple):
    """A part of `length` numbers, and the places where it begins; its copies do not overlap."""

    length: int
    places: tuple[int, ...]


def repeats(
    numbers: list[int], is_wanted: Callable[[int, int, int], bool] = lambda *_: True
) -> Iterator[RepeatedSteps]:
    """All parts that occur twice or more and cannot be longer without being fewer.

    Of a part that follows itself, one period is given: it occurs most often. `is_wanted` is asked
    before a part is looked at closer: it has at most this length, begins at this place, and occurs
    at most this many times.
    """
    order = _suffixes(np.array(numbers, np.int64))
    for length, low, high in _common_prefixes(_shared(numbers, order)):
        if not is_wanted(length, int(order[low]), high + 1 - low):
            continue
        places = np.sort(order[low : high + 1])
        period = int(np.diff(places).min())
        length = min(length, period)
        separate = _apart(places.tolist(), length)
        if len(separate) > 1:
            yield RepeatedSteps(length, separate)


def _apart(places: list[int], length: int) -> tuple[int, ...]:
    separate = [places[0]]
    for place in places[1:]:
        if place >= separate[-1] + length:
            separate.append(place)
    return tuple(separate)


def _suffixes(numbers: np.ndarray) -> np.ndarray:
    """Where suffixes begin, in their order; ranks of prefixes twice as long in each turn."""
    n, width = len(numbers), 1
    rank = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    while True:
        following = np.zeros(n, np.int64)
        following[: max(n - width, 0)] = rank[width:] + 1
        key = rank * (n + 2) + following
        order = np.argsort(key, kind="stable")
        rank = np.empty(n, np.int64)
        rank[order] = np.cumsum(np.diff(key[order], prepend=key[order][:1]) != 0)
        if n < 2 or rank[order[-1]] == n - 1:
            return order
        width *= 2


def _shared(numbers: list[int], order: np.ndarray) -> list[int]:
    """How many numbers each suffix shares with the one before it in the order (Kasai)."""
    n = len(numbers)
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    shared, length = [0] * n, 0
    at, before = rank.tolist(), order.tolist()
    for suffix in range(n):
        if at[suffix] == 0:
            length = 0
            continue
        other = before[at[suffix] - 1]
        while suffix + length < n and other + length < n:
            if numbers[suffix + length] != numbers[other + length]:
                break
            length += 1
        shared[at[suffix]] = length
        length = max(length - 1, 0)
    return shared


def _common_prefixes(shared: list[int]) -> Iterator[tuple[int, int, int]]:
    """(length, first, last) of ranges of suffixes with a common prefix as long as it can be."""
    stack: list[tuple[int, int]] = []  # length, first
    for index, length in enumerate([*shared[1:], 0], 1):
        first = index - 1
        while stack and stack[-1][0] > length:
            longest, first = stack.pop()
            yield longest, first, index - 1
        if length and (not stack or stack[-1][0] < length):
            stack.append((length, first))
