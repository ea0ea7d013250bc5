"""Linear algebra over tiles: eigenvectors by parallel rotations, QR and Hessenberg by reflections.

Loops of the program: the body is compiled once. Each tile holds one or two rows or columns, works
on them alone, and gets the few numbers it needs from the others by exchange.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tremula.frontends.jax.tessellate.arrays import (
    TileShardedArray,
    tile_put_replicated,
    tile_put_sharded,
)

N_SWEEPS = 9  # of rotations of all pairs: enough for float32 at 512 rows, converging quadratically


def ipu_eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = False,
    sort_eigenvalues: bool = True,
    num_iters: int | None = None,
) -> tuple[Any, Any]:
    """Eigenvectors (columns) and eigenvalues of a symmetric matrix, by Jacobi's rotations.

    The rows are paired; tile i holds pair i. All pairs are rotated at once, then they change
    partners as in a round-robin tournament, so that after n - 1 rounds everyone has met.
    `num_iters` is the number of such sweeps. An odd matrix gets one more row, of zeros.
    """
    size = _square(x, "ipu_eigh")
    triangle = jnp.tril(x) if lower else jnp.triu(x)
    x = (x + x.T) / 2 if symmetrize_input else triangle + triangle.T - jnp.diag(jnp.diag(x))
    n = size + size % 2
    a = jnp.pad(x, ((0, n - size), (0, n - size)))
    rotated, vectors = _sweeps(a, n, N_SWEEPS if num_iters is None else num_iters)
    values = jnp.diag(rotated)
    if n > size:  # the added row has met others, but never mixes with them: its vector is its own
        saved = jnp.argsort(jnp.abs(vectors[size]), stable=True)[:size]
        values, vectors = values[saved], vectors[:size, saved]
    if sort_eigenvalues:
        order = jnp.argsort(values)
        values, vectors = values[order], vectors[:, order]
    return vectors, values


def _sweeps(a: Any, n: int, count: int) -> tuple[Any, Any]:
    """The matrix after all rotations, nearly diagonal, and their product."""
    half, tiles = n // 2, tuple(range(n // 2))
    order = _next_partners(n)

    def round_(_: object, state: tuple) -> tuple:
        first, second, v_first, v_second = state  # rows of the pairs, of the matrix and of V^T
        cosine, sine = _rotations(first, second, half)
        first, second = _turned(first, second, cosine[:, None], sine[:, None])
        v_first, v_second = _turned(v_first, v_second, cosine[:, None], sine[:, None])
        # Columns are in the order of the rows: those of the pairs are the two halves.
        rows = []
        for row in (first, second):
            left, right = _turned(row[:, :half], row[:, half:], cosine, sine)
            rows.append(jnp.concatenate([left, right], 1)[:, order])
        vectors = _repaired([v_first, v_second], order, half, tiles)
        return _repaired(rows, order, half, tiles) + vectors

    eye = jnp.eye(n, dtype=a.dtype)
    start = (a[:half], a[half:], eye[:half], eye[half:])
    state = tuple(tile_put_sharded(part, tiles).array for part in start)
    first, second, v_first, v_second = lax.fori_loop(0, count * (n - 1), round_, state)
    return jnp.concatenate([first, second]), jnp.concatenate([v_first, v_second]).T


def _next_partners(n: int) -> np.ndarray:
    """Who stands at each place in the next round: one stays, all others move on by a place."""
    half = n // 2
    ring = [*range(half), *range(n - 1, half - 1, -1)]  # around the table
    turned = [ring[0], ring[-1], *ring[1:-1]]
    order = np.empty(n, np.int64)
    order[:half] = turned[:half]
    order[half:] = turned[half:][::-1]
    return order


def _rotations(first: Any, second: Any, half: int) -> tuple[Any, Any]:
    """Cosine and sine for each pair, which make the element between them zero."""
    diagonal = jnp.arange(half)
    app, apq = first[diagonal, diagonal], first[diagonal, diagonal + half]
    aqq = second[diagonal, diagonal + half]
    tiny = jnp.finfo(first.dtype).tiny
    is_done = jnp.abs(apq) <= tiny
    theta = (aqq - app) / (2 * jnp.where(is_done, 1.0, apq))
    tangent = jnp.where(theta >= 0, 1.0, -1.0) / (jnp.abs(theta) + jnp.sqrt(theta * theta + 1))
    tangent = jnp.where(is_done, 0.0, tangent)
    cosine = lax.rsqrt(tangent * tangent + 1)
    return cosine, tangent * cosine


def _turned(first: Any, second: Any, cosine: Any, sine: Any) -> tuple[Any, Any]:
    return cosine * first - sine * second, sine * first + cosine * second


def _repaired(rows: list, order: np.ndarray, half: int, tiles: tuple[int, ...]) -> tuple:
    """Rows with their partners of the next round, on the tiles of the pairs."""
    moved = jnp.concatenate(rows)[order]
    return tuple(tile_put_sharded(part, tiles).array for part in (moved[:half], moved[half:]))


def ipu_qr(x: Any, xsdiag: Any = None) -> tuple[TileShardedArray, TileShardedArray]:  # noqa: ARG001
    """Q and the transposed R of a square matrix, by Householder's reflections: x = Q R.

    Tile i holds column i of R, tile n + i row i of Q. `xsdiag` was a hint for their signs.
    """
    n = _square(x, "ipu_qr")
    columns, rows = tuple(range(n)), tuple(range(n, 2 * n))

    def step(k: object, state: tuple) -> tuple:
        q, r = state
        reflector = _reflector(lax.dynamic_index_in_dim(r, k, 0, keepdims=False), k)
        return _reflected(q, reflector, rows), _reflected(r, reflector, columns)

    eye = jnp.eye(n, dtype=x.dtype)
    start = tile_put_sharded(eye, rows).array, tile_put_sharded(x.T, columns).array
    q, r = lax.fori_loop(0, n - 1, step, start)
    return TileShardedArray(q, rows), TileShardedArray(r, columns)


def ipu_hessenberg(x: Any) -> tuple[TileShardedArray, TileShardedArray]:
    """Q and the upper Hessenberg matrix H of a square matrix: x = Q H Q^T.

    Tile i holds row i of H, tile n + i row i of Q.
    """
    n = _square(x, "ipu_hessenberg")
    own, others = tuple(range(n)), tuple(range(n, 2 * n))

    def step(k: Any, state: tuple) -> tuple:
        q, h = state
        reflector = _reflector(lax.dynamic_index_in_dim(h, k, 1, keepdims=False), k + 1)
        h = _reflected(_reflected(h.T, reflector, own).T, reflector, own)
        return _reflected(q, reflector, others), h

    eye = jnp.eye(n, dtype=x.dtype)
    start = tile_put_sharded(eye, others).array, tile_put_sharded(x, own).array
    q, h = lax.fori_loop(0, max(n - 2, 0), step, start)
    return TileShardedArray(q, others), TileShardedArray(h, own)


def _reflector(column: Any, k: Any) -> Any:
    """The unit vector whose reflection leaves only the first k + 1 elements of a column."""
    place = jnp.arange(column.shape[0])
    below = jnp.where(place >= k, column, 0)
    head = lax.dynamic_index_in_dim(column, k, 0, keepdims=False)
    length = jnp.sqrt(jnp.sum(below * below))
    v = jnp.where(place == k, head + jnp.where(head >= 0, length, -length), below)
    size = jnp.sum(v * v)
    return jnp.where(size > 0, v * lax.rsqrt(jnp.where(size > 0, size, 1)), 0)


@partial(jax.jit, static_argnums=2)
def _reflected(rows: object, reflector: object, tiles: tuple[int, ...]) -> Any:
    """Every row reflected, by the tile that holds it."""
    rows = tile_put_sharded(rows, tiles).array
    copies = tile_put_replicated(reflector, tiles).array
    along = jnp.sum(rows * copies, 1, keepdims=True)
    return tile_put_sharded(rows - 2 * along * copies, tiles).array


def _square(x: Any, name: str) -> int:
    shape = np.shape(x)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"{name} takes a square matrix, got an array of shape {shape}.")
    return shape[0]
