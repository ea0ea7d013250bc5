"""Pairs of rows of blocks: every block is in one, and rows that share columns meet."""

import numpy as np
import pytest

from tremula.ir.ops import row_pairs as module
from tremula.ir.ops.row_pairs import row_pairs


def pattern(present):
    """(row_start, columns) of a matrix of blocks."""
    rows, columns = np.nonzero(present)
    counts = np.bincount(rows, minlength=len(present))
    starts = np.concatenate(([0], np.cumsum(counts)))
    return starts.astype(np.int32), columns.astype(np.int32)


@pytest.mark.parametrize("shape", [(1, 3), (2, 4), (7, 9), (20, 6)])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_every_block_is_in_its_row_and_column(shape, density, monkeypatch):
    """Odd numbers of rows, empty ones, and more than one window of partners."""
    monkeypatch.setattr(module, "_WINDOW", 8)
    present = np.random.default_rng(1).random(shape) < density
    starts, columns = pattern(present)
    found = row_pairs(starts, columns, shape[1])
    assert sorted(found.rows[found.rows >= 0].tolist()) == list(range(shape[0]))
    again = np.zeros(shape, bool)
    for pair, (begin, end) in enumerate(zip(found.start[:-1], found.start[1:], strict=True)):
        assert (np.diff(found.columns[begin:end]) > 0).all()
        for column, blocks in zip(found.columns[begin:end], found.blocks[begin:end], strict=True):
            assert (blocks >= 0).any()
            for row, block in zip(found.rows[pair], blocks, strict=True):
                if block >= 0:
                    assert (columns[block], starts[row] <= block < starts[row + 1]) == (
                        column,
                        True,
                    )
                    again[row, column] = True
    assert (again == present).all()


def test_equal_rows_meet():
    """Four rows of two kinds: each has its like for a partner, and no column is there twice."""
    present = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
    found = row_pairs(*pattern(present), 4)
    assert sorted(sorted(pair) for pair in found.rows.tolist()) == [[0, 2], [1, 3]]
    assert len(found.columns) == 4
