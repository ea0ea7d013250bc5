"""Remembered plans are those of equal arguments, and cannot be changed by a caller."""

import numpy as np
import pytest

from tremula.poplibs.poputil.memo import MAX_REMEMBERED_BYTES, N_REMEMBERED, remembered


def test_equal_arguments_are_computed_once() -> None:
    """Contents decide, not identity; type, shape and other arguments count."""
    calls = []

    @remembered
    def total(values: np.ndarray, factor: int) -> np.ndarray:
        calls.append(factor)
        return values * factor

    first = total(np.arange(3), 2)
    assert total(np.arange(3), 2) is first
    total(np.arange(3), 3)
    total(np.arange(3, dtype=np.int32), 2)
    total(np.arange(3).reshape(3, 1), 2)
    assert calls == [2, 3, 2, 2]


def test_results_are_read_only() -> None:
    """A shared result that a caller could change would change the next caller's plan."""

    @remembered
    def pair(n: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(n), np.ones(n)

    with pytest.raises(ValueError, match="read-only"):
        pair(2)[1][0] = 5


def test_old_results_are_forgotten() -> None:
    """Only the last n results are cached."""
    calls = []

    @remembered
    def number(n: int) -> int:
        calls.append(n)
        return n

    for n in range(N_REMEMBERED + 1):
        number(n)
    number(0)
    assert calls[-1] == 0
    assert len(calls) == N_REMEMBERED + 2


def test_large_results_are_forgotten_sooner() -> None:
    """All results of a function together take at most a fixed number of bytes."""
    calls = []
    third = MAX_REMEMBERED_BYTES // 3

    @remembered
    def zeros(n: int) -> tuple[np.ndarray, ...]:
        calls.append(n)
        return (np.zeros(n - 1, np.uint8), np.zeros(1, np.uint8))

    for n in (third, third + 1, third, third - 2, third - 1, third + 1):
        zeros(n)
    assert calls == [third, third + 1, third - 2, third - 1, third + 1]
