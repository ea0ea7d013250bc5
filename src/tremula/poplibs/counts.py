"""Arithmetic on counts: one number, or a column of them."""

import numpy as np


def ceil_div(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    """`a / b` rounded up: how many groups of `b` it takes to hold `a`."""
    return -(-np.asarray(a, np.int64) // b)


def distinct(*columns: np.ndarray) -> np.ndarray:
    """The different numbers of columns, ascending. None is negative or much above their number."""
    is_there = np.zeros(max((int(c.max(initial=-1)) for c in columns), default=-1) + 1, bool)
    for column in columns:
        is_there[column] = True
    return np.flatnonzero(is_there)
