"""Arithmetic on counts: one number, or a column of them."""

import numpy as np


def ceil_div(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    """`a / b` rounded up: how many groups of `b` it takes to hold `a`.

    Columns are divided as floats, five times as fast: exact below 2**53, which no count reaches.
    """
    a = np.asarray(a, np.int64)
    return -(-a // b) if np.ndim(b) == 0 else np.ceil(a / b).astype(np.int64)


def floor_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`a / b` rounded down: how many whole groups of `b` there are in `a`, below 2**53."""
    return np.floor(a / b).astype(np.int64)


def distinct(*columns: np.ndarray) -> np.ndarray:
    """The different numbers of columns, ascending. None is negative or much above their number."""
    is_there = np.zeros(max((int(c.max(initial=-1)) for c in columns), default=-1) + 1, bool)
    for column in columns:
        is_there[column] = True
    return np.flatnonzero(is_there)
