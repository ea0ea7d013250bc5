"""Rows of blocks, two by two: those that share columns, so that a dense row is read once for both.

On a GPU a product with few blocks in a row waits for the rows of its dense operand.
"""

from typing import NamedTuple

import numpy as np

Ints = np.ndarray
_WINDOW = 512  # rows among which partners are looked for


class RowPairs(NamedTuple):
    """Pairs of rows, and the columns that either has, ascending in a pair."""

    rows: Ints  # int32[pairs, 2]; -1 where the number of rows is odd
    start: Ints  # int32[pairs + 1]: the first column of each
    columns: Ints  # int32[columns of all pairs]
    blocks: Ints  # int32[columns of all pairs, 2]: the block of each row, -1: none


def row_pairs(row_start: Ints, columns: Ints, n_columns: int) -> RowPairs:
    """The pairs of a pattern, given as the first block of each row and the blocks' columns."""
    rows = _partners(row_start, columns, n_columns)
    place = np.zeros((len(row_start), 2), np.int64)  # pair and side; the last is of no row
    place[rows.reshape(-1)] = np.stack(np.divmod(np.arange(rows.size), 2), axis=1)
    n_blocks = np.diff(row_start)
    pair, side = place[np.repeat(np.arange(len(n_blocks)), n_blocks)].T
    keys, entry = np.unique(pair * n_columns + columns, return_inverse=True)
    blocks = np.full((len(keys), 2), -1, np.int32)
    blocks[entry, side] = np.arange(len(columns))
    start = np.searchsorted(keys, np.arange(len(rows) + 1) * n_columns)
    return RowPairs(rows, start.astype(np.int32), (keys % n_columns).astype(np.int32), blocks)


def _partners(row_start: Ints, columns: Ints, n_columns: int) -> Ints:
    """Within windows the two rows that share most, then the next two, until all have a partner."""
    n_rows, found = len(row_start) - 1, []
    for first in range(0, n_rows, _WINDOW):
        last = min(first + _WINDOW, n_rows)
        n_blocks = np.diff(row_start[first : last + 1])
        present = np.zeros((last - first, n_columns), np.float32)
        row = np.repeat(np.arange(last - first), n_blocks)
        present[row, columns[row_start[first] : row_start[last]]] = 1
        shared = present @ present.T
        np.fill_diagonal(shared, -1)
        for _ in range((last - first) // 2):
            a, b = np.unravel_index(shared.argmax(), shared.shape)
            found.append((first + a, first + b))
            shared[[a, b]] = shared[:, [a, b]] = -1
    alone = np.setdiff1d(np.arange(n_rows), np.array(found, np.int64).reshape(-1))
    rest = np.append(alone, -1)[: len(alone) + len(alone) % 2].reshape(-1, 2)
    return np.concatenate((np.array(found, np.int64).reshape(-1, 2), rest)).astype(np.int32)
