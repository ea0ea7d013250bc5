"""Repeated parts of a list: all that a search for every part finds, and none that overlaps."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tremula.poplibs.outlining.repeats import repeats


def _most(numbers: list[int]) -> int:
    """The most numbers that one part can save, by looking at every part."""
    best = 0
    for length in range(1, len(numbers)):
        for first in range(len(numbers) - length):
            at, count = first, 0
            while at + length <= len(numbers):
                if numbers[at : at + length] == numbers[first : first + length]:
                    count, at = count + 1, at + length
                else:
                    at += 1
            best = max(best, (count - 1) * length)
    return best


@given(st.lists(st.integers(0, 2), max_size=14))
def test_repeats_are_equal_and_apart(numbers):
    """Copies of a part are equal and do not overlap."""
    for length, places in repeats(numbers):
        parts = {tuple(numbers[place : place + length]) for place in places}
        assert len(parts) == 1 < len(places)
        assert len(next(iter(parts))) == length > 0
        assert all(b >= a + length for a, b in pairwise(places))


@given(st.integers(1, 4), st.integers(2, 5), st.integers(0, 3))
def test_layers_are_found(n_steps, n_layers, n_extra):
    """A part that follows itself is found once per repetition, whatever is around it."""
    layer, before = list(range(10, 10 + n_steps)), list(range(n_extra))
    numbers = [*before, *layer * n_layers, 99]
    assert max((len(p) - 1) * n for n, p in repeats(numbers)) == _most(numbers)


def test_nothing_repeats_in_different_numbers():
    """Without equal numbers there is nothing."""
    assert not list(repeats([3, 1, 2]))
    assert not list(repeats([]))
