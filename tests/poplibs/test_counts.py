"""Arithmetic on counts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tremula.poplibs.counts import distinct

numbers = st.lists(st.integers(0, 40), max_size=9)


@given(numbers, numbers)
def test_distinct_numbers_ascend(one, other):
    """Those of all columns, each once; none of empty columns."""
    columns = [np.array(column, np.int64) for column in (one, other)]
    assert distinct(*columns).tolist() == sorted({*one, *other})
