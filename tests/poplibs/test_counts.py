"""Arithmetic on counts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tremula.poplibs.counts import ceil_div, distinct, floor_div

numbers = st.lists(st.integers(0, 40), max_size=9)


@given(numbers, numbers)
def test_distinct_numbers_ascend(one, other):
    """Those of all columns, each once; none of empty columns."""
    columns = [np.array(column, np.int64) for column in (one, other)]
    assert distinct(*columns).tolist() == sorted({*one, *other})


counts = st.lists(st.tuples(st.integers(0, 2**53 - 1), st.integers(1, 2**30)), min_size=1)


@given(counts)
def test_columns_are_divided_exactly(pairs):
    """Quotients of columns, rounded up and down, are those of whole numbers."""
    pairs += [(n * b + over, b) for n, b in pairs if n < 2**22 for over in (-1, 0, 1) if n]
    a, b = np.array(pairs).T
    assert ceil_div(a, b).tolist() == [-(-n // size) for n, size in pairs]
    assert floor_div(a, b).tolist() == [n // size for n, size in pairs]
