"""Arithmetic on counts: one number, or a column of them."""

import numpy as np


def ceil_div(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    """`a / b` rounded up: how many groups of `b` it takes to hold `a`."""
    return -(-np.asarray(a, np.int64) // b)
