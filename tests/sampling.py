"""Samples of large sweeps that `make test` runs, the same each time; `make test-wide` runs all."""

import os
from collections.abc import Iterable

import pytest

WIDE = pytest.mark.wide
SAMPLE = "same"
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", SAMPLE)
MIN_EXAMPLES = 4


def in_turn(first: Iterable, second: Iterable) -> list:
    """Parameters for every pair; those that a sample of each case in turn leaves out are wide.

    Each case of either list is in a pair that is not wide.
    """
    first, second = list(first), list(second)
    n = min(len(first), len(second))
    return [
        pytest.param(a, b, marks=() if i % n == j % n else WIDE)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]


def one_in(step: int, cases: Iterable) -> list:
    """Parameters for all cases, which may be tuples; all but every `step`-th are wide."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*value, marks=WIDE if i % step else ()) for i, value in enumerate(values)]


def n_examples(n: int) -> int:
    """How many of a property test's examples run: a third, unless all are wanted."""
    return min(n, max(MIN_EXAMPLES, n // 3)) if PROFILE == SAMPLE else n
