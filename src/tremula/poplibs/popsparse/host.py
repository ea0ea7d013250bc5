"""Static sparse products on this computer: for models that run here, and as a reference.

Blocks are multiplied with sums in registers (codelets/native), row of blocks by row of blocks, which
the computer's cores share. Arrays are float32; halves are widened once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit, prange

from tremula.codelets.native.matrix import multiply_accumulate
from tremula.codelets.native.sparse import sum_scaled_rows
from tremula.poplibs.popsparse.formats import CSRMatrix

Ints = np.ndarray
# Columns at a time: rows of them for a row of blocks, and what it is multiplied by, stay in cache.
N_AT_ONCE = 128


# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportArgumentType=false
# ruff: noqa: ANN001, ANN202, PLR0917


@njit(parallel=True, cache=True, error_model="numpy")
def _multiply(pointers, columns, values, dense, n, side, out):
    """out[rows, n] = the matrix by dense[columns, n], all flat."""
    area = side * side
    n_chunks = (n + N_AT_ONCE - 1) // N_AT_ONCE
    for task in prange((len(pointers) - 1) * n_chunks):
        row, chunk = task // n_chunks, task % n_chunks
        first = chunk * N_AT_ONCE
        width = min(N_AT_ONCE, n - first)
        for i in range(side):
            at = (row * side + i) * n + first
            out[at : at + width] = 0
        for p in range(pointers[row], pointers[row + 1]):
            multiply_accumulate(
                out, row * side * n + first, n, values, p * area, side, 1,
                dense, columns[p] * side * n + first, n, side, side, width,
            )  # fmt: skip


@njit(parallel=True, cache=True, error_model="numpy")
def _multiply_elements(pointers, starts, values, dense, n, out):
    """The same for single values; `starts` are where their dense rows begin."""
    n_chunks = (n + N_AT_ONCE - 1) // N_AT_ONCE
    for task in prange((len(pointers) - 1) * n_chunks):
        row, chunk = task // n_chunks, task % n_chunks
        first = chunk * N_AT_ONCE
        width = min(N_AT_ONCE, n - first)
        sum_scaled_rows(
            out, row * n + first, dense, first, values, starts, pointers[row], pointers[row + 1],
            width,
        )  # fmt: skip


@njit(parallel=True, cache=True, fastmath=True)
def _values_gradient(row, column, dense, gradient, n, side, out):
    """Products of rows of the gradient by rows of the dense operand, at the pattern alone."""
    for p in prange(len(row)):
        for i in range(side):
            for j in range(side):
                a, b = (row[p] * side + i) * n, (column[p] * side + j) * n
                total = np.float32(0)
                for k in range(n):
                    total += gradient[a + k] * dense[b + k]
                out[(p * side + i) * side + j] = total


@dataclass(frozen=True, eq=False)
class HostProduct:
    """A pattern, ready to be multiplied: what follows from it is computed once."""

    pattern: CSRMatrix

    @property
    def side(self) -> int:
        return self.pattern.block[0]

    @cached_property
    def _blocks(self) -> tuple[Ints, Ints]:
        area = self.pattern.block_size
        return self.pattern.row_indices // area, self.pattern.column_indices // self.side

    @cached_property
    def _rows(self) -> Ints:
        pointers, _ = self._blocks
        return np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))

    @cached_property
    def _transposed(self) -> tuple[Ints, Ints, Ints]:
        """(pointers, rows, order of blocks) by columns."""
        _, columns = self._blocks
        order = np.argsort(columns, kind="stable")
        n = self.pattern.num_columns // self.side
        counts = np.bincount(columns, minlength=n)
        return np.concatenate(([0], np.cumsum(counts))), self._rows[order], order

    def multiply(self, values: Ints, dense: Ints) -> Ints:
        """The matrix with these values by dense [k, n]."""
        return self._product(*self._blocks, _flat(values), dense, self.pattern.num_rows)

    def dense_gradient(self, values: Ints, gradient: Ints) -> Ints:
        """The transposed matrix by a gradient [m, n]."""
        pointers, rows, order = self._transposed
        blocks = _flat(values).reshape(-1, self.side, self.side)[order].transpose(0, 2, 1)
        return self._product(pointers, rows, _flat(blocks), gradient, self.pattern.num_columns)

    def values_gradient(self, dense: Ints, gradient: Ints) -> Ints:
        """The gradient of the values, in their order."""
        out = np.empty(len(self.pattern.nz_values), np.float32)
        n = dense.shape[1]
        _values_gradient(
            self._rows, self._blocks[1], _flat(dense), _flat(gradient), n, self.side, out
        )
        return out

    def _product(
        self, pointers: Ints, columns: Ints, values: Ints, dense: Ints, n_rows: int
    ) -> Ints:
        n = dense.shape[1]
        out = np.empty((n_rows, n), np.float32)
        if self.side == 1:
            _multiply_elements(pointers, columns * n, values, _flat(dense), n, out.reshape(-1))
        else:
            _multiply(pointers, columns, values, _flat(dense), n, self.side, out.reshape(-1))
        return out


def _flat(array: Ints) -> Ints:
    return np.ascontiguousarray(array, np.float32).reshape(-1)
