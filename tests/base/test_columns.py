"""Columns and bytes: every number comes back, small ones take little, damage is refused."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tremula.base import columns
from tremula.base.columns import coded, compacted, expanded, inflate, is_compacted, pack, unpack
from tremula.base.errors import FileLoadError


@pytest.mark.slow
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60).map(
        lambda values: np.array(values, np.int64)
    ),
    st.booleans(),
)
def test_packing_keeps_every_number(values, by_rows):
    """Any whole numbers come back as they were."""
    table = values[: len(values) // 3 * 3].reshape(-1, 3)
    name, data = pack(table, by_rows=by_rows)
    assert np.array_equal(unpack(data, name, table.shape, "it"), table)


def test_small_numbers_take_small_types():
    """The smallest type is chosen, and floats stay floats."""
    assert [pack(np.array([n]))[0] for n in (255, 256, -1, 2**40)] == ["u1", "u2", "i1", "u8"]
    name, data = pack(np.array([0.5, -2.0]))
    assert unpack(data, name, (2,), "it").tolist() == [0.5, -2.0]


def test_a_bomb_is_not_unpacked(monkeypatch):
    """A blob that holds more than it says, or says too much, is refused."""
    bomb = zlib.compress(bytes(10_000_000))
    with pytest.raises(FileLoadError, match="expected 100"):
        inflate(bomb, 100, "the blob")
    monkeypatch.setattr(columns, "MAX_BLOB_BYTES", 1_000)
    with pytest.raises(FileLoadError, match="at most 1,000 are read"):
        inflate(bomb, 10_000_000, "the blob")
    with pytest.raises(FileLoadError, match="cannot be unpacked"):
        inflate(b"nothing packed", 100, "the blob")
    with pytest.raises(FileLoadError, match="has type 'O'"):
        unpack(bomb, "O", (3,), "the blob")


@pytest.mark.slow
@given(st.lists(st.text(max_size=4)))
def test_coded_texts(texts):
    """Numbers stand for texts, each text once."""
    distinct, codes = coded(texts)
    assert [distinct[i] for i in codes.tolist()] == texts
    assert len(set(distinct)) == len(distinct)


@pytest.mark.parametrize(
    ("column", "facts", "n_bytes"),
    [
        (np.arange(10, 50, 4), {"first": 10, "step": 4}, 0),
        (np.cumsum(np.arange(10) % 5) + 10**12, {"first": 10**12}, 9),
        (np.arange(10) % 7, {"wide": "<i8"}, 10),
        (np.array([2**62, 0, -(2**62), 5]), {}, 32),
    ],
    ids=["progression", "differences", "narrow", "as it is"],
)
def test_whole_numbers_take_the_smallest_form(column, facts, n_bytes):
    """Each form is chosen where it is smallest, and gives the column back."""
    result, stored = compacted(column)
    assert result == facts
    assert (0 if stored is None else stored.nbytes) == n_bytes
    assert is_compacted(result) == bool(facts)
    if facts:
        assert np.array_equal(expanded(result, len(column), lambda n: stored[:n]), column)
