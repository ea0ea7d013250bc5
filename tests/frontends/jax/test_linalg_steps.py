"""TessellateIPU's steps of linear algebra: rotations, reflections and tridiagonal systems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tessellate_ipu as ti
import tremula.jax
from tessellate_ipu.linalg import tile_linalg_hessenberg as hessenberg
from tessellate_ipu.linalg import tile_linalg_jacobi as jacobi
from tessellate_ipu.linalg import tile_linalg_qr as qr
from tessellate_ipu.linalg import tile_linalg_tridiagonal_eigh as tridiagonal
from tessellate_ipu.linalg.tile_linalg_tridiagonal_solver import ipu_tridiag_solve


def symmetric(n):
    x = np.random.default_rng(n).standard_normal((n, n)).astype(np.float32)
    return (x + x.T) / 2


def test_pairs_of_columns():
    """Pairs begin as neighbours; in the next round all columns but the first move on."""
    pairs = jacobi.jacobi_next_rotation_set(jacobi.jacobi_initial_rotation_set(8))
    np.testing.assert_array_equal(pairs, [[0, 3], [1, 5], [2, 7], [4, 6]])
    np.testing.assert_array_equal(
        jacobi.jacobi_sort_rotation_set(np.array([[3, 0], [1, 2]])), [[0, 3], [1, 2]]
    )
    first, second = jacobi.permute_pq_indices(np.arange(2), np.arange(2, 4), [True, False])
    np.testing.assert_array_equal([first, second], [[0, 3], [2, 1]])


@pytest.mark.slow
def test_rotations_written_with_the_steps():
    """Sweeps of the steps, and of `ipu_jacobi_eigh`, end with the eigenvalues and vectors."""

    def by_steps(x, loop=(0, 15, jacobi.ipu_jacobi_eigh_body)):
        n = x.shape[0]
        eye, half = np.eye(n, dtype=np.float32), n // 2
        columns = (
            *jacobi.tile_sharded_pq_columns(x[0::2], x[1::2], tuple(range(half))),
            *jacobi.tile_sharded_pq_columns(eye[0::2], eye[1::2], tuple(range(half, n))),
        )
        done = jax.lax.fori_loop(*loop, columns)
        first, second, *vectors = (one.array[:, jacobi.INDEX_PREFIX :] for one in done)
        return [jnp.stack(pair, 1).reshape(n, n) for pair in ((first, second), vectors)]

    x = symmetric(4)
    values, vectors = np.linalg.eigh(x)
    sweeps = 0, 5, jacobi.ipu_jacobi_eigh_iteration
    for rotated, transposed in (
        tremula.jax.jit(by_steps)(x),
        tremula.jax.jit(lambda x: jacobi.ipu_jacobi_eigh(x, 5))(x),
        jax.jit(lambda x: by_steps(x, sweeps))(x),
    ):
        order = np.argsort(np.diag(rotated))
        np.testing.assert_allclose(np.diag(rotated)[order], values, atol=1e-5)
        np.testing.assert_allclose(np.abs(transposed[order].T), np.abs(vectors), atol=1e-5)


@pytest.mark.slow
def test_reflections():
    """Signs of R's diagonal and of a Hessenberg matrix's subdiagonal are those asked for."""
    x = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)
    signs = np.float32([1, -1, -1, 1, 1, -1])
    q, transposed = tremula.jax.jit(qr.ipu_qr)(x, signs)
    np.testing.assert_allclose(q.array @ transposed.array.T, x, atol=1e-5)
    np.testing.assert_array_equal(np.sign(np.diag(transposed.array))[:-1], signs[:-1])
    assert (q.tiles, transposed.tiles) == (tuple(range(6)), tuple(range(6, 12)))

    def form(x, signs):
        parts = hessenberg.ipu_hessenberg_shard_inputs(x, signs)
        return hessenberg.ipu_hessenberg_iterations(*parts)

    q, h = map(np.asarray, tremula.jax.jit(form)(x, signs))
    np.testing.assert_allclose(q @ h @ q.T, x, atol=1e-5)
    np.testing.assert_array_equal(np.sign(np.diag(h, -1))[:-1], signs[1:-1])


def test_steps_of_a_tile():
    """What one tile computes: a rotation, a product in parts, a reflector, a row's update."""
    x, v, half = np.arange(1, 17, dtype=np.float32), np.ones(12, np.float32), np.float32([0.5])

    def steps(x, v, half):
        x, v, half = (ti.tile_put_replicated(one, (0,)) for one in (x, v, half))
        return (
            ti.tile_map(qr.dot_product1d_p, x, x),
            ti.tile_map(qr.qr_householder_row_update_p, x, v, half, half, start_idx=4),
            *ti.tile_map(qr.qr_correction_vector_p, x, x, col_idx=14),
        )

    parts, row, reflector, scale = (one.array[0] for one in tremula.jax.jit(steps)(x, v, half))
    assert parts.shape == (12,)
    np.testing.assert_allclose(parts.sum(), x @ x)
    np.testing.assert_allclose(row, np.concatenate([x[:4], x[4:] - 0.25]))
    expected = np.where(np.arange(16) >= 14, x, 0)
    expected[14] -= np.linalg.norm(expected) * x[14]
    np.testing.assert_allclose(reflector, expected, rtol=1e-6)
    np.testing.assert_allclose(scale, [2 / (expected @ expected)], rtol=1e-5)


@pytest.mark.slow
def test_tridiagonal_matrices():
    """Six systems share a tile; eigenvectors come from the tridiagonal form."""
    random = np.random.default_rng(0)
    diagonal, upper, right = random.random((3, 7, 5)).astype(np.float32)
    diagonal, lower = diagonal + 2, np.roll(upper, 1, axis=1)
    result = tremula.jax.jit(ipu_tridiag_solve)(diagonal, upper, lower, right)
    assert result.tiles == (0,) * 6 + (1,)
    for i in range(7):
        matrix = np.diag(diagonal[i]) + np.diag(upper[i, :-1], 1) + np.diag(lower[i, 1:], -1)
        np.testing.assert_allclose(matrix @ result.array[i], right[i], atol=1e-5)


@pytest.mark.slow
def test_eigenvectors_of_a_symmetric_matrix():
    """Eigenvectors of the tridiagonal form, turned back, are those of the matrix."""
    x = symmetric(6)
    values, vectors = tremula.jax.jit(tridiagonal.ipu_hess_eigh)(x)
    expected, columns = np.linalg.eigh(x)
    np.testing.assert_allclose(values, expected, atol=1e-5)
    np.testing.assert_allclose(np.abs(vectors.T), np.abs(columns), atol=1e-4)


@pytest.mark.parametrize(
    ("diagonal", "above"),
    [
        ([2.0, 1.0, 3.0, -1.0], [0.0, 0.0, 0.0]),  # every eigenvalue is a pivot of zero
        ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),  # so is each first pivot, of the middle ones
        ([1.0, 1.0, 1.0, 5.0], [1.0, 1e-4, 1e-4]),
        ([0.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0]),
    ],
)
def test_eigenvectors_where_elimination_meets_zero_pivots(diagonal, above):
    """Each row is a unit vector that the matrix multiplies by its eigenvalue."""
    d, e = np.float32(diagonal), np.float32(above)
    vectors, values = (np.asarray(one) for one in tridiagonal.ipu_tridiagonal_eigh(d, e))
    matrix = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix), atol=1e-5)
    np.testing.assert_allclose(vectors @ matrix, values[:, None] * vectors, atol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
