"""Host formats of sparse matrices, against SciPy and dense matrices."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.poplibs.popsparse import COOMatrix, CSCMatrix, CSRMatrix, SparsityError

A = np.zeros((4, 6), np.float32)
A[[0, 0, 1, 2, 2, 2, 3], [1, 4, 0, 2, 3, 5, 4]] = [1, 2, 3, 4, 5, 6, 7]
FORMATS = (COOMatrix, CSRMatrix, CSCMatrix)


def test_elements_by_rows_and_by_columns():
    """Values, indices and pointers are those of the worked example."""
    csr = CSRMatrix.from_dense(A)
    assert csr.column_indices.tolist() == [1, 4, 0, 2, 3, 5, 4]
    assert csr.row_indices.tolist() == [0, 2, 3, 6, 7]
    csc = csr.to_csc()
    assert csc.nz_values.tolist() == [3, 1, 4, 5, 2, 7, 6]
    assert csc.column_indices.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert csc.row_indices.tolist() == [1, 0, 2, 2, 0, 3, 2]


def test_blocks_by_rows_and_by_columns():
    """Pointers count elements, values of a block lie by columns in CSC."""
    dense = np.zeros((2, 4))
    dense[:, 2:] = [[1, 2], [3, 4]]
    csr = CSRMatrix.from_dense(dense, (2, 2))
    assert csr.nz_values.tolist() == [1, 2, 3, 4]
    assert (csr.column_indices.tolist(), csr.row_indices.tolist()) == ([2], [0, 4])
    csc = csr.to_csc()
    assert csc.nz_values.tolist() == [1, 3, 2, 4]
    assert (csc.column_indices.tolist(), csc.row_indices.tolist()) == ([0, 0, 4], [0])


@settings(max_examples=60)
@given(
    st.integers(0, 10_000),
    st.sampled_from([(1, 1), (2, 2), (4, 2), (1, 3)]),
    st.integers(0, 5),
    st.integers(1, 5),
    st.floats(0, 1),
)
def test_every_way_there_and_back(seed, block, n_rows, n_columns, density):
    """Each format from each other, and dense: the same matrix, equal to SciPy's."""
    rng = np.random.default_rng(seed)
    present = rng.random((n_rows, n_columns)) < density
    dense = np.kron(present, np.ones(block)) * rng.normal(
        size=(n_rows * block[0], n_columns * block[1])
    )
    for first in FORMATS:
        matrix = first.from_dense(dense, block)
        assert np.array_equal(matrix.to_dense(), dense)
        for again in (matrix.to_coo(), matrix.to_csr(), matrix.to_csc()):
            assert np.array_equal(again.to_dense(), dense)
            assert again == type(again).from_dense(dense, block)
    if block == (1, 1) and n_rows:
        expected, result = scipy.sparse.csr_matrix(dense), CSRMatrix.from_dense(dense)
        assert np.array_equal(result.row_indices, expected.indptr)
        assert np.array_equal(result.column_indices, expected.indices)
        assert np.array_equal(result.nz_values, expected.data)


def test_block_sizes_change():
    """Blocks are cut, and joined again where every part is there."""
    dense = np.kron(np.array([[1, 0], [0, 1]]), np.arange(16).reshape(4, 4) + 1)
    coo = COOMatrix.from_dense(dense, (4, 4))
    small = coo.with_block((2, 1))
    assert small.n_blocks == 16
    assert np.array_equal(small.to_dense(), dense)
    assert small.with_block((4, 4)) == coo
    lacking = COOMatrix.from_dense(np.eye(4), (1, 1))
    with pytest.raises(SparsityError, match="has 2 of its 4 parts"):
        lacking.with_block((2, 2))
    with pytest.raises(SparsityError, match="neither divide nor consist"):
        coo.with_block((3, 4))


def test_duplicates_are_found():
    """A block that occurs again is named by its place in the list."""
    coo = COOMatrix(2, 2, [1.0, 2.0, 3.0], [0, 1, 0], [0, 1, 0])
    assert coo.duplicates().tolist() == [2]
    assert coo.to_dense().tolist() == [[4, 0], [0, 2]]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: COOMatrix(3, 4, [], [], [], (2, 2)), "3 rows are not a multiple of the block's 2"),
        (lambda: COOMatrix(2, 2, [1.0], [0, 1], [0]), "1 row indices, but 2 column indices"),
        (lambda: COOMatrix(2, 2, [1.0, 2.0], [0], [0]), "1 row_indices of blocks with 1"),
        (lambda: COOMatrix(4, 4, [1.0] * 4, [1], [0], (2, 2)), "is not a multiple of block size 2"),
        (lambda: COOMatrix(2, 2, [1.0], [2], [0]), "column_indices 2 at index 0 exceeds bound 2"),
        (lambda: CSRMatrix(2, 2, [1.0], [0], [0, 1]), "2 row_indices, expected 3"),
        (lambda: CSRMatrix(2, 2, [1.0], [0], [0, 1, 2]), "the last of row_indices is 2"),
        (lambda: CSRMatrix(2, 2, [1.0], [0], [0, 3, 1]), "do not ascend from 0: 1 at index 2"),
        (lambda: CSCMatrix(2, 2, [1.0], [0, 1, 1], [5]), "row_indices 5 at index 0 exceeds"),
        (
            lambda: CSCMatrix(4, 4, [1.0] * 4, [0, 2, 4], [0], (2, 2)),
            "2 at index 1 is not a multiple",
        ),
    ],
)
def test_contradictions_are_named(make, said):
    """Sizes, counts, bounds and orders that do not fit: format, what, and where."""
    with pytest.raises(SparsityError, match="Validation failed") as error:
        make()
    assert said in str(error.value)
