"""Unions of byte intervals within tiles."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tremula.compiler.passes.intervals import merge_per_group, union_on_tiles

SPAN = 40
rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 9)), max_size=20)


def columns(listed):
    tile, low, size = np.array(listed, np.int64).reshape(-1, 3).T
    return tile, low, low + size


@given(rows)
def test_unions_hold_each_byte_once(listed):
    """In whatever order intervals come, each tile has the bytes of all its intervals, sorted."""
    tile, low, high = columns(listed)
    wanted = {(int(t), at) for t, a, b in zip(tile, low, high, strict=True) for at in range(a, b)}
    for union in (merge_per_group, union_on_tiles):
        result = union(tile, low, high, 4, SPAN)
        pieces = list(zip(*(c.tolist() for c in result[:3]), strict=True))
        assert pieces == sorted(pieces)
        assert [(t, at) for t, a, b in pieces for at in range(a, b)] == sorted(wanted)
        assert result.n_bytes.tolist() == [sum(t == i for t, _ in wanted) for i in range(4)]
        assert result.n_joined.tolist() == [sum(p[0] == i for p in pieces) for i in range(4)]


@given(rows)
def test_intervals_that_bring_new_bytes_are_counted_in_order(listed):
    """Sorted by tile and begin, those of the same begin as they came: each new byte counts once."""
    tile, low, high = columns(listed)
    known, n_new = set(), [0] * 4
    for t, a, b in sorted(zip(*(c.tolist() for c in columns(listed)), strict=True), key=_place):
        bytes_of_row = {(t, at) for at in range(a, b)}
        n_new[t] += not bytes_of_row <= known
        known |= bytes_of_row
    assert union_on_tiles(tile, low, high, 4, SPAN).n_new.tolist() == n_new


def _place(row):
    return row[:2]
