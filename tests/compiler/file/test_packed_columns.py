"""Columns in files: read back exactly, equal ones once, and small files stay small in memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.compiler.file import packed_columns
from tremula.compiler.file.packed_columns import PackedColumns, UnpackedColumns

N = 1000  # enough elements to be packed


def _both_ways(*arrays: np.ndarray) -> tuple[PackedColumns, list[np.ndarray]]:
    packed = PackedColumns()
    numbers = [packed.add(array) for array in arrays]
    read = UnpackedColumns(packed.table, memoryview(b"".join(packed.blobs)))
    return packed, [read[number] for number in numbers]


COLUMNS = {
    "constant": np.full(N, 7),
    "ascending": np.arange(-5, N - 5) * 12,
    "small numbers": np.arange(N) % 100,
    "small differences": np.cumsum(np.arange(N) % 50) + 10**12,
    "wide": np.arange(N) ** 5 * (-1) ** np.arange(N),
    "limits": np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max] * N),
    "two dimensions": (np.arange(4 * N) // 3).reshape(4, N),
    "few": np.array([3, 1, 2]),
    "none": np.zeros((0, 3), np.int64),
    "floats": np.linspace(0, 1, N),
    "flags": np.arange(N) % 2 == 0,
    "turned": np.arange(4 * N).reshape(4, N).T,
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_come_back(name):
    """Type, shape and every number are those that were written; the arrays are read-only."""
    _, (read,) = _both_ways(COLUMNS[name])
    assert read.dtype == COLUMNS[name].dtype
    assert read.shape == COLUMNS[name].shape
    assert np.array_equal(read, COLUMNS[name])
    assert not read.flags.writeable


@settings(max_examples=50, deadline=None)
@given(st.integers(-(2**62), 2**62), st.lists(st.integers(-(2**40), 2**40), min_size=1))
def test_any_addresses_come_back(first, steps):
    """Whatever the differences are, they add up to the same addresses."""
    column = first + np.cumsum(np.resize(np.array(steps, np.int64), N))
    assert np.array_equal(_both_ways(column)[1][0], column)


def test_equal_bytes_are_stored_once():
    """Equal columns are one array; columns a distance apart share their differences."""
    column = np.cumsum(np.arange(N) % 50) + 10**6
    packed, read = _both_ways(column, column.copy(), column + 10**6)
    assert read[0] is read[1]
    assert len(packed.table) == 2
    assert len(packed.blobs) == 1
    assert packed.n_bytes < N + 64


def test_progressions_take_no_bytes():
    """A constant or evenly spaced column is two numbers."""
    assert _both_ways(np.full(N, 3), np.arange(N) * 4)[0].n_bytes == 0


def test_a_small_file_cannot_fill_the_memory(monkeypatch):
    """What columns may unpack to is limited, however often they share their bytes."""
    monkeypatch.setattr(packed_columns, "MAX_UNPACKED_BYTES", 100 * 8)
    table = [{"shape": [60], "first": i, "step": 1} for i in range(2)]
    read = UnpackedColumns(table, memoryview(b""))
    assert read[0].tolist() == list(range(60))
    with pytest.raises(ValueError, match="more than 800 bytes"):
        read[1]


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [0], "first": 1, "step": 1},
        {"shape": [5], "first": 2**70, "step": 1},
        {"shape": [5], "first": 1, "step": 2**70},
        {"shape": [5], "first": 1, "dtype": "<i2", "at": 0},
        {"shape": [5], "first": 1, "dtype": "O", "at": 0},
        {"shape": [-1], "first": 1, "step": 1},
    ],
)
def test_malformed_entries_are_refused(entry):
    """Nothing is read beyond the bytes there are, and only numbers are."""
    with pytest.raises((ValueError, OverflowError)):
        UnpackedColumns([entry], memoryview(b""))[0]


@pytest.mark.parametrize("name", ["08f4,", "(1,2", ",", "O", "<U3", "f4, i4", 3, None])
def test_types_of_damaged_files_are_not_parsed(name):
    """A type that is not a plain number's is an error of ours, not one of NumPy's parser."""
    columns = UnpackedColumns([{"dtype": name, "shape": [1], "at": 0}], memoryview(bytes(64)))
    with pytest.raises(ValueError, match="array type"):
        columns[0]
