"""Tridiagonal matrices over tiles: systems of equations, eigenvalues and eigenvectors.

Each tile solves one system, or computes one eigenvector, by itself.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from tremula.codelets.spec import N_WORKERS
from tremula.frontends.jax.tessellate.arrays import TileShardedArray, tile_put_sharded
from tremula.frontends.jax.tessellate.householder import ipu_hessenberg
from tremula.frontends.jax.tessellate.mapping import tile_map
from tremula.frontends.jax.tessellate.primitives import make_primitive

Rows = TileShardedArray


def _solved(d: Array, u: Array, l: Array, b: Array) -> list[Array]:
    """Elimination from the first equation to the last, and back."""

    def down(state: tuple, row: tuple) -> tuple:
        upper, right = state
        diagonal, above, below, value = row
        pivot = diagonal - below * upper
        state = above / pivot, (value - below * right) / pivot
        return state, state

    def up(x: Array, row: tuple) -> tuple:
        upper, right = row
        x = right - upper * x
        return x, x

    zero = jnp.zeros((), d.dtype)
    shape, rows = d.shape, [part.reshape(-1) for part in (d, u, l, b)]
    rows[2] = rows[2].at[0].set(0)  # the first equation has nothing before it
    _, (upper, right) = lax.scan(down, (zero, zero), tuple(rows))
    _, x = lax.scan(up, zero, (upper.at[-1].set(0), right), reverse=True)
    return [x.reshape(shape), u, l, b]


tridiagonal_solver_p = make_primitive("tridiagonal_solver", _solved, multiple_results=True)


def _solved_nearly_singular(d: Array, u: Array, l: Array, b: Array) -> list[Array]:
    """Elimination with exchanges of rows; a pivot of zero counts as the rounding of the matrix.

    Inverse iteration solves systems that are singular but for rounding: without exchanges a pivot
    in the middle may be tiny, and the last one may be exactly zero.
    """

    def down(current: tuple, following: tuple) -> tuple:
        # Elements in this column, in the next two, and the right side. Before elimination the
        # current row ends one column earlier than the following one.
        stays = jnp.abs(current[0]) >= jnp.abs(following[0])
        chosen, other = _exchanged(stays, (*current[:2], zero, current[2]), following)
        ratio = other[0] / jnp.where(chosen[0] == 0, 1, chosen[0])
        rest = tuple(q - ratio * p for p, q in zip(chosen, other, strict=True))
        return (rest[1], rest[2], rest[3]), chosen

    def up(last: tuple, row: tuple) -> tuple:
        pivot, upper, further, right = row
        x = (right - upper * last[0] - further * last[1]) / pivot
        return (x, last[0]), x

    zero = jnp.zeros((), d.dtype)
    shape, (d, u, l, b) = d.shape, (part.reshape(-1) for part in (d, u, l, b))
    u, l = u.at[-1].set(0), l.at[0].set(0)
    below = tuple(jnp.roll(part, -1).at[-1].set(0) for part in (l, d, u, b))
    _, (pivots, *rows) = lax.scan(down, (d[0], u[0], b[0]), below)
    info = jnp.finfo(d.dtype)
    least = info.eps * jnp.max(jnp.abs(d) + jnp.abs(u) + jnp.abs(l)) + info.tiny
    pivots = jnp.where(jnp.abs(pivots) < least, least, pivots)
    _, x = lax.scan(up, (zero, zero), (pivots, *rows), reverse=True)
    return [x.reshape(shape)]


def _exchanged(stays: Array, current: tuple, following: tuple) -> tuple[tuple, tuple]:
    """Both rows in the order of elimination."""
    pairs = tuple(zip(current, following, strict=True))
    chosen = tuple(jnp.where(stays, p, q) for p, q in pairs)
    return chosen, tuple(jnp.where(stays, q, p) for p, q in pairs)


inverse_iteration_p = make_primitive(
    "tridiagonal_inverse_iteration", _solved_nearly_singular, multiple_results=True
)


def ipu_tridiag_solve_shard_inputs(
    diag: Array, udiag: Array, ldiag: Array, rhs: Array
) -> tuple[Rows, Rows, Rows, Rows]:
    """Systems [systems, n], six on each tile."""
    shapes = {jnp.shape(part) for part in (diag, udiag, ldiag, rhs)}
    if len(shapes) != 1:
        raise ValueError(f"diagonals and right-hand sides have one shape, got {sorted(shapes)}.")
    # One system for each worker of a tile.
    tiles = tuple(i // N_WORKERS for i in range(jnp.shape(diag)[0]))
    d, u, lower, b = (tile_put_sharded(part, tiles) for part in (diag, udiag, ldiag, rhs))
    return d, u, lower, b


def ipu_tridiag_solve(diag: Array, udiag: Array, ldiag: Array, rhs: Array) -> Rows:
    """Solutions of tridiagonal systems [systems, n].

    Row i of a matrix has ldiag[i], diag[i] and udiag[i]; the first of `ldiag` and the last of
    `udiag` are not used.
    """
    operands = ipu_tridiag_solve_shard_inputs(diag, udiag, ldiag, rhs)
    return tile_map(tridiagonal_solver_p, *operands)[0]


def ipu_tridiagonal_eigenvalue(
    d: Array,
    e: Array,
    *,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
) -> Array:
    """All eigenvalues, in order, of a symmetric matrix with diagonal d and subdiagonal e.

    By bisection: how many eigenvalues are below a number is a count of signs. All bits are
    computed, also where `tol` would let it end earlier.
    """
    del tol
    if select != "a" or select_range is not None:
        raise NotImplementedError("ipu_tridiagonal_eigenvalue finds all eigenvalues: select='a'.")
    d, e = jnp.asarray(d, jnp.float32), jnp.asarray(e, jnp.float32)
    n = d.shape[0]
    if n == 1:
        return d
    around = jnp.abs(jnp.pad(e, (1, 0))) + jnp.abs(jnp.pad(e, (0, 1)))
    low, high = jnp.min(d - around), jnp.max(d + around)
    info = jnp.finfo(d.dtype)
    least = info.tiny * jnp.maximum(1, jnp.max(e * e))
    limits = jnp.full(n, low), jnp.full(n, high)

    def halved(_: object, limits: tuple) -> tuple:
        low, high = limits
        middle = (low + high) / 2
        is_above = _n_below(d, e * e, middle, least) > jnp.arange(n)
        return jnp.where(is_above, low, middle), jnp.where(is_above, middle, high)

    low, high = lax.fori_loop(0, info.nmant + 3, halved, limits)
    return (low + high) / 2


def _n_below(d: Array, squares: Array, numbers: Array, least: Array) -> Array:
    """How many eigenvalues are below each of some numbers: negative pivots."""

    def row(state: tuple, values: tuple) -> tuple:
        pivot, count = state
        diagonal, square = values
        pivot = diagonal - numbers - square / pivot
        pivot = jnp.where(jnp.abs(pivot) < least, -least, pivot)
        return (pivot, count + (pivot < 0)), None

    start = jnp.ones_like(numbers), jnp.zeros(numbers.shape, jnp.int32)
    (_, count), _ = lax.scan(row, start, (d, jnp.pad(squares, (1, 0))))
    return count


def ipu_tridiagonal_eigh(
    d: Array, e: Array, n_iter: int = 2, seed: int = 42
) -> tuple[Array, Array]:
    """Eigenvectors (rows) and eigenvalues, by inverse iteration from random vectors."""
    n = d.shape[0]
    values = ipu_tridiagonal_eigenvalue(d, e)
    matrix = jnp.broadcast_to(d, (n, n)) - values[:, None]
    upper = jnp.broadcast_to(jnp.pad(e, (0, 1)), (n, n))
    lower = jnp.broadcast_to(jnp.pad(e, (1, 0)), (n, n))

    def improved(_: object, x: Array) -> Array:
        rows = ipu_tridiag_solve_shard_inputs(matrix, upper, lower, x)
        return _unit(tile_map(inverse_iteration_p, *rows)[0].array)

    start = jax.random.normal(jax.random.PRNGKey(seed), (n, n), jnp.float32)
    return lax.fori_loop(0, n_iter, improved, _unit(start)), values


def _unit(rows: Array) -> Array:
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)


def ipu_eigh_hess(M: Array) -> tuple[Array, Array]:  # noqa: N803
    """Eigenvectors (rows) and eigenvalues of a symmetric matrix, by its tridiagonal form."""
    values, vectors = ipu_hess_eigh(M)
    return vectors, values


def ipu_hess_eigh(x: Array, num_iters: int = 2) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors (rows) of a symmetric matrix, by its tridiagonal form."""
    q, form = ipu_hessenberg(x)
    diagonals = jnp.diag(form.array), jnp.diag(form.array, 1)
    vectors, values = ipu_tridiagonal_eigh(*diagonals, n_iter=num_iters)
    return values, vectors @ q.array.T
