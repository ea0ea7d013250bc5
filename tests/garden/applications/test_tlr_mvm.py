"""Tile low-rank products: tolerance, the three phases, the balance of pieces, bad input."""

import numpy as np
import pytest

import tremula as tr
from tremula.garden.applications.tlr_mvm.compression import compressed, covariance, morton_order
from tremula.garden.applications.tlr_mvm.main import bandwidth_share
from tremula.garden.applications.tlr_mvm.program import pieces_of, tlr_engine


def rebuilt(matrix) -> np.ndarray:
    """The dense matrix that the factors stand for: one product for each unit vector."""
    order = matrix.row_order()
    return np.stack(
        [matrix.multiply(unit, order) for unit in np.eye(matrix.n, dtype=np.float32)], 1
    )


@pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-4])
def test_compression_keeps_its_tolerance(tolerance):
    """The whole matrix is within the tolerance, and no block could do with much less."""
    dense = covariance(16)
    matrix = compressed(dense, 64, tolerance)
    error = np.linalg.norm(rebuilt(matrix) - dense) / np.linalg.norm(dense)
    assert error <= tolerance
    assert error > tolerance / 20
    assert matrix.total_rank == sum(len(v) for v in matrix.v) == sum(u.shape[1] for u in matrix.u)


def test_a_looser_tolerance_has_lower_ranks():
    """Ranks of all blocks fall as the tolerance grows, and compression rises."""
    dense = covariance(16)
    tight, loose = (compressed(dense, 64, tolerance) for tolerance in (1e-5, 1e-2))
    assert (loose.ranks <= tight.ranks).all()
    assert loose.compression > tight.compression


@pytest.mark.parametrize("n_tiles", [1, 5])
def test_tiles_multiply_as_numpy(n_tiles):
    """Three phases on tiles give NumPy's three phases, and the dense product within tolerance."""
    dense = covariance(16)
    matrix = compressed(dense, 64, 1e-4)
    x = np.random.default_rng(0).standard_normal(256).astype(np.float32)
    engine = tlr_engine(matrix, n_tiles).load()
    engine.write_tensor("x", x)
    engine.run()
    y = engine.read_tensor("y")
    np.testing.assert_allclose(y, matrix.multiply(x, matrix.row_order()), rtol=1e-4, atol=1e-4)
    assert np.linalg.norm(y - dense @ x) <= 1e-3 * np.linalg.norm(dense @ x)
    names = engine.report().steps.name
    assert [name.split(":")[0] for name in names] == ["phase 1", "phase 2", "phase 3"]
    assert 0 < bandwidth_share(matrix, engine) < 1


def test_pieces_are_balanced():
    """Blocks get pieces in proportion to their work; no worker has more than a row too much."""
    sizes = np.array([[100, 8], [50, 8], [25, 8]])
    n_pieces = pieces_of(sizes, 14)
    assert n_pieces.tolist() == [8, 4, 2]
    assert pieces_of(np.array([[2, 5]]), 9).tolist() == [2]


def test_morton_order_visits_every_cell_once():
    """Quarters of the curve are quarters of the square."""
    cells = morton_order(8)
    assert len({tuple(cell) for cell in cells.tolist()}) == 64
    assert cells[:16].max() == 3


def test_bad_input_is_named():
    """Sizes that do not fit, a tolerance that is none, a side that is not a power of two."""
    with pytest.raises(
        tr.errors.InvalidOption, match=r"\[64, 64\] cannot be cut into blocks of 48"
    ):
        compressed(covariance(8), 48, 1e-3)
    with pytest.raises(tr.errors.InvalidOption, match="tolerance is 2"):
        compressed(covariance(8), 32, 2)
    with pytest.raises(tr.errors.InvalidOption, match="12 is not a power of two"):
        covariance(12)
