"""The patterns that PopSparse's public benchmark multiplies, block for block.

It shuffles all blocks with C++'s generators and takes the first ones (createProblem in
ipu/matmul_bench.cpp of graphcore-research/sparsity-benchmarks). Which parts of a matrix have more
blocks than their buckets hold depends on that pattern, so another one of the same density can be
faster or slower.
"""

# Numba types what it compiles by itself.
# ruff: noqa: ANN001, ANN202

from math import ceil

import numpy as np

from tremula.codelets.native.stored_code import jit
from tremula.poplibs.popsparse import CSRMatrix

SEED = 123  # of the benchmark
# std::default_random_engine of GNU's C++ library is minstd_rand0: 1 to 2147483646.
_FACTOR, _MODULUS = 16807, 2147483647
_RANGE = _MODULUS - 2  # largest minus least number


@jit()
def _below(state, n):
    """(state, number below n): std::uniform_int_distribution, which draws again what is uneven."""
    scale = _RANGE // n
    number = n * scale
    while number >= n * scale:
        state = state * _FACTOR % _MODULUS
        number = state - 1
    return state, number // scale


@jit()
def shuffled(n, seed):  # noqa: ANN201
    """int32[n]: 0 to n - 1 in the order of GNU's std::shuffle; few are swapped two at a draw."""
    order = np.arange(n).astype(np.int32)
    state, i = np.int64(seed), 1
    in_pairs = _RANGE // n >= n
    if in_pairs and n % 2 == 0:
        state, at = _below(state, 2)
        order[1], order[at] = order[at], order[1]
        i = 2
    while i < n:
        if not in_pairs:
            state, at = _below(state, i + 1)
            order[i], order[at] = order[at], order[i]
            i += 1
            continue
        state, pair = _below(state, (i + 1) * (i + 2))
        for at in (pair // (i + 2), pair % (i + 2)):
            order[i], order[at] = order[at], order[i]
            i += 1
    return order


def benchmark_pattern(m: int, k: int, side: int, density: float) -> CSRMatrix:
    """The [m, k] pattern of a density in blocks of a side; values are zero."""
    rows, columns = m // side, k // side
    n = ceil(density * rows * columns)
    chosen = np.sort(shuffled(rows * columns, SEED)[:n])
    row, column = np.divmod(chosen, columns)
    pointers = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows)))) * side * side
    values = np.zeros(n * side * side, np.float32)
    return CSRMatrix(m, k, values, column * side, pointers, (side, side))
