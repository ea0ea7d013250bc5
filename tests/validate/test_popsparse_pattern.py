"""The pattern that the PopSparse benchmark makes with C++'s generators."""

import numpy as np
import pytest

from tremula.validate.workloads.popsparse_pattern import SEED, benchmark_pattern, shuffled


@pytest.mark.parametrize(
    ("n", "first", "last"),
    [(7, [3, 0, 1], [6, 5, 2]), (8, [2, 0, 6], [4, 3, 7]),
     (16384, [4641, 5970, 4534], None), (50000, [46126, 21149, 48624], [3345, 3094, 18864])],
)  # fmt: skip
def test_order_is_that_of_the_cpp_library(n, first, last):
    """std::shuffle with seed 123, as compiled by g++ 12: odd, even, and too many for pairs."""
    order = shuffled(n, SEED)
    assert order[:3].tolist() == first
    assert last is None or order[-3:].tolist() == last
    assert np.array_equal(np.sort(order), np.arange(n))


def test_pattern_holds_the_first_blocks_of_the_order():
    """A quarter of 4 × 4 blocks: the first four of the order, by rows."""
    pattern = benchmark_pattern(64, 64, 16, 0.25)
    row = np.repeat(np.arange(4), np.diff(pattern.row_indices) // 256)
    blocks = row * 4 + pattern.column_indices // 16
    assert blocks.tolist() == sorted(shuffled(16, SEED)[:4].tolist()) == [0, 2, 6, 13]
