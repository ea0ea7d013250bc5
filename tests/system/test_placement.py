"""Where partitions go, against a search through all blocks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tremula.system.control.placement import place


def free_block_around(is_free, first, size):
    """The size of the largest aligned free block that holds a block, by looking at all of them."""
    largest = size
    while True:
        wider = largest * 2
        begin = first // wider * wider
        if begin + wider > len(is_free) or not all(is_free[begin : begin + wider]):
            return largest
        largest = wider


def best_by_search(is_free, size):
    result = []
    for first in range(0, len(is_free) - size + 1, size):
        if all(is_free[first : first + size]):
            result.append((free_block_around(is_free, first, size), first))
    return min(result)[1] if result else None


@given(st.lists(st.booleans(), min_size=1, max_size=70), st.sampled_from([1, 2, 4, 8, 16]))
def test_a_partition_goes_where_a_search_would_put_it(is_free, size):
    """The block is aligned and free, and the first of those in the smallest gap."""
    assert place(np.array(is_free), size) == best_by_search(is_free, size)
