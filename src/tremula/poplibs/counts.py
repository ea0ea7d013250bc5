"""Arithmetic on counts, one number or a column of them."""

import numpy as np


def ceil_div(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    """How many groups of `b` hold `a` things."""
    return -(-np.asarray(a, np.int64) // b)
