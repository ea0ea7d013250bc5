"""Cholesky, triangular solve, LU, QR, grids: what the registry's samples do not show."""

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import run_op, small_graph
from tremula.poplibs import poplin
from tremula.poplibs.registry import PoplibsError


def positive_definite(n, seed=0):
    root = np.random.default_rng(seed).standard_normal((n, n))
    return (root @ root.T + n * np.eye(n)).astype(np.float32)


def random_matrix(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_cholesky_reads_one_triangle_only():
    """What stands in the other triangle does not matter, and the result is zero there."""
    matrix = positive_definite(21)
    spoilt = np.tril(matrix) + np.triu(np.full_like(matrix, np.nan), 1)
    (lower,) = run_op(poplin.cholesky, [spoilt])
    assert np.allclose(lower @ lower.T, matrix, rtol=1e-4)
    (upper,) = run_op(poplin.cholesky, [spoilt.T.copy()], options={"lower": False})
    assert np.array_equal(upper, lower.T)


def test_cholesky_of_an_indefinite_matrix_is_nan():
    """A matrix that has no Cholesky factor gives NaN, not a wrong number."""
    (factor,) = run_op(poplin.cholesky, [np.array([[1, 2], [2, 1]], np.float32)])
    assert np.isnan(factor[1, 1])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_layout_does_not_change_a_bit(seed):
    """Results are the same bits for every layout of the operand."""
    matrix = positive_definite(19)
    (first,) = run_op(poplin.cholesky, [matrix], seed=10)
    (other,) = run_op(poplin.cholesky, [matrix], seed=seed)
    assert first.tobytes() == other.tobytes()


def test_triangular_solve_undoes_a_product():
    """A·X = B and X·A = B hold for the X that is found."""
    a = np.triu(random_matrix(23, 23)) + 5 * np.eye(23, dtype=np.float32)
    b = random_matrix(23, 4, seed=1)
    (x,) = run_op(poplin.triangular_solve, [a, b], options={"lower": False})
    assert np.allclose(a @ x, b, atol=1e-4)
    options = {"lower": False, "left_side": False}
    (x,) = run_op(poplin.triangular_solve, [a, b.T.copy()], options=options)
    assert np.allclose(x @ a, b.T, atol=1e-4)


def test_lu_moves_the_largest_row_up():
    """Partial pivoting: a matrix that cannot be factored in order can be after an exchange."""
    matrix = np.array([[0, 1], [2, 3]], np.float32)
    lower, upper, permutation = run_op(poplin.lu_factorization, [matrix])
    assert permutation.tolist() == [1, 0]
    assert np.array_equal(lower @ upper, matrix[permutation])
    big = random_matrix(40, 33)
    lower, upper, permutation = run_op(poplin.lu_factorization, [big])
    assert np.abs(lower).max() <= 1
    assert np.allclose(lower @ upper, big[permutation], atol=1e-4)


def test_qr_is_orthonormal():
    """Q's columns are orthonormal, R is triangular, and Q·R is the matrix; zero columns too."""
    matrix = random_matrix(33, 20)
    matrix[:, 3] = 0
    q, r = run_op(poplin.qr_factorization, [matrix])
    assert np.allclose(q.T @ q, np.eye(20), atol=1e-5)
    assert np.array_equal(r, np.triu(r))
    assert np.allclose(q @ r, matrix, atol=1e-5)


def test_created_inputs_save_time():
    """An input made for Cholesky lies in panels: it starts sooner than from a linear layout."""

    def cycles(make):
        graph, sequence = small_graph(), tr.Sequence()
        poplin.cholesky(graph, make(graph), sequence)
        engine = tr.Engine(graph, sequence).load()
        engine.run()
        return engine.report().total_cycles

    shape = (64, 64)
    made = cycles(lambda graph: poplin.create_cholesky_input(graph, shape))
    linear = cycles(lambda graph: graph.add_variable("float", shape, "a", mapping="linear"))
    assert made < linear


def test_cost_grows_with_the_matrix():
    """Twice the size costs more than twice and less than eight times the cycles of a small one."""

    def cycles(n):
        graph, sequence = small_graph(), tr.Sequence()
        poplin.cholesky(graph, graph.add_variable("float", (n, n), "a", mapping="linear"), sequence)
        engine = tr.Engine(graph, sequence).load()
        engine.run()
        return engine.report().total_cycles

    assert 2 < cycles(64) / cycles(32) < 8


def test_grids():
    """linspace has both ends; meshgrid_2d gives NumPy's grids as views."""
    graph = small_graph()
    x = poplin.linspace(graph, "float", -1, 1, 5)
    y = graph.add_variable("float", [3], "y", mapping=0)
    across, down = poplin.meshgrid_2d(graph, x, y)
    assert across.shape == down.shape == (3, 5)
    graph.create_host_read("across", across)
    graph.create_host_read("down", down)
    graph.create_host_write("y", y)
    engine = tr.Engine(graph, tr.Sequence()).load()
    engine.write_tensor("y", np.array([7, 8, 9], np.float32))
    engine.run()
    expected = np.meshgrid(np.linspace(-1, 1, 5), [7, 8, 9])
    assert np.array_equal(engine.read_tensor("across"), expected[0])
    assert np.array_equal(engine.read_tensor("down"), expected[1])


def test_grid_errors():
    """Wrong types, counts and ranks are named."""
    graph = small_graph()
    with pytest.raises(PoplibsError, match="got 0 of float"):
        poplin.linspace(graph, "float", 0, 1, 0)
    with pytest.raises(PoplibsError, match="one or more floats or halves, got 3 of int"):
        poplin.linspace(graph, "int", 0, 1, 3)
    matrix = graph.add_variable("float", [2, 2], "m", mapping=0)
    with pytest.raises(PoplibsError, match="expected two vectors"):
        poplin.meshgrid_2d(graph, matrix, matrix)
