"""QR and Hessenberg forms over tiles, by Householder's reflections.

Loops of the program: the body is compiled once. Each tile holds one row or column, works on it
alone, and gets the reflector from the others by exchange. The primitives are TessellateIPU's steps
of a tile.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from tremula.frontends.jax.tessellate.arrays import (
    TileShardedArray,
    tile_put_replicated,
    tile_put_sharded,
)
from tremula.frontends.jax.tessellate.primitives import make_primitive, square_size

Rows = TileShardedArray
N_PARTIALS = 12  # of a product: two for each worker


# -- what a tile does ------------------------------------------------------------------------------


def _partial_products(x: Array, y: Array) -> Array:
    """Twelve numbers whose sum is the product of two vectors."""
    product = x * y
    rest = -product.shape[0] % N_PARTIALS
    return jnp.pad(product, (0, rest)).reshape(-1, N_PARTIALS).sum(0)


def _correction(Rcol: Array, sdiag: Array, *, col_idx: int) -> list[Array]:  # noqa: N803
    """The vector that reflects a column on to its first elements, and 2 / its square."""
    place = jnp.arange(Rcol.shape[0])
    below = jnp.where(place >= col_idx, Rcol, 0)
    norm = jnp.sqrt(jnp.sum(below * below))
    v = jnp.where(place == col_idx, below - norm * sdiag[col_idx], below)
    return [v, (2 / jnp.sum(v * v)).reshape(1)]


def _row_update(x: Array, v: Array, scale1: Array, scale2: Array, *, start_idx: int) -> Array:
    """A row less a scaled vector, from an element on."""
    tail = x[start_idx:] - scale1.reshape(()) * scale2.reshape(()) * v
    return jnp.concatenate([x[:start_idx], tail])


dot_product1d_p = make_primitive("dot_product1d", _partial_products)
qr_correction_vector_p = make_primitive("qr_correction_vector", _correction, multiple_results=True)
qr_householder_row_update_p = make_primitive("qr_householder_row_update", _row_update)


# -- QR --------------------------------------------------------------------------------------------


def ipu_qr(x: Array, xsdiag: Array | None = None) -> tuple[Rows, Rows]:
    """Q and the transposed R of a square matrix: x = Q R.

    Tile i holds row i of Q, tile n + i column i of R. `xsdiag` are the signs of R's diagonal,
    apart from the last.
    """
    signs = jnp.zeros(square_size(x, "ipu_qr"), x.dtype) if xsdiag is None else xsdiag
    return ipu_qr_iterations(*ipu_qr_shard_inputs(x, signs))


def ipu_qr_shard_inputs(x: Array, xsdiag: Array) -> tuple[Rows, Rows, Rows]:
    """The identity and the transposed matrix, a row for each tile, and signs on all tiles."""
    n = square_size(x, "ipu_qr")
    rows, columns = tuple(range(n)), tuple(range(n, 2 * n))
    eye = tile_put_sharded(jnp.eye(n, dtype=x.dtype), rows)
    return eye, tile_put_sharded(x.T, columns), tile_put_replicated(xsdiag, columns)


def ipu_qr_iterations(Q: Rows, RT: Rows, sdiag_full: Rows) -> tuple[Rows, Rows]:  # noqa: N803
    """Reflect until R is triangular."""

    def step(k: Array, state: tuple) -> tuple:
        q, r = state
        reflector = _reflector(lax.dynamic_index_in_dim(r, k, 0, keepdims=False), k)
        return _reflected(q, reflector, Q.tiles), _reflected(r, reflector, RT.tiles)

    n = len(Q)
    q, r = lax.fori_loop(0, n - 1, step, (Q.array, RT.array))
    flips = _flips(jnp.diag(r), sdiag_full.array[0]).at[n - 1].set(1)
    return _flipped(q, flips, Q.tiles), _flipped(r, flips, RT.tiles)


def _flips(values: Array, signs: Array) -> Array:
    """-1 where a value has not the sign it should have; where that is 0, any will do."""
    return jnp.where(values * signs < 0, -1, 1).astype(values.dtype)


def _flipped(rows: Array, flips: Array, tiles: tuple[int, ...]) -> Rows:
    return tile_put_sharded(rows * flips, tiles)


# -- Hessenberg ------------------------------------------------------------------------------------


def ipu_hessenberg(x: Array) -> tuple[Rows, Rows]:
    """Q and the upper Hessenberg matrix H of a square matrix: x = Q H Q^T.

    Tile i holds row i of both.
    """
    signs = jnp.zeros(square_size(x, "ipu_hessenberg"), x.dtype)
    return ipu_hessenberg_iterations(*ipu_hessenberg_shard_inputs(x, signs))


def ipu_hessenberg_shard_inputs(x: Array, xsdiag: Array) -> tuple[Rows, Rows, Rows]:
    """The identity and the matrix, a row for each tile, and signs on all tiles."""
    tiles = tuple(range(square_size(x, "ipu_hessenberg")))
    eye = tile_put_sharded(jnp.eye(len(tiles), dtype=x.dtype), tiles)
    return eye, tile_put_sharded(x, tiles), tile_put_replicated(xsdiag, tiles)


def ipu_hessenberg_body(i: Array | int, carry: tuple[Rows, Rows, Rows]) -> tuple[Rows, Rows, Rows]:
    """Reflect rows and columns so that column i is 0 below its first subdiagonal element."""
    q, r, sdiag = carry
    column = lax.dynamic_index_in_dim(r.array, i, 1, keepdims=False)
    reflector = _reflector(column, i + 1)
    columns = _reflected(r.array.T, reflector, r.tiles)
    rows = _reflected(columns.T, reflector, r.tiles)
    new_q = _reflected(q.array, reflector, q.tiles)
    return TileShardedArray(new_q, q.tiles), TileShardedArray(rows, r.tiles), sdiag


def ipu_hessenberg_iterations(Q: Rows, R: Rows, sdiag_full: Rows) -> tuple[Rows, Rows]:  # noqa: N803
    """Q and the Hessenberg matrix; its subdiagonal has the signs of `sdiag_full`, but for the last.

    Signs begin with the second; where one is 0, either will do.
    """
    n = len(Q)
    state = lax.fori_loop(0, max(n - 2, 0), ipu_hessenberg_body, (Q, R, sdiag_full))
    q, form = state[0].array, state[1].array
    wanted = _flips(jnp.diag(form, -1), sdiag_full.array[0][1:])[: max(n - 2, 0)]
    flips = jnp.concatenate([jnp.ones(1, q.dtype), jnp.cumprod(wanted)])
    flips = jnp.pad(flips, (0, n - flips.shape[0]), constant_values=1)
    return _flipped(q, flips, Q.tiles), _flipped(form * flips[:, None], flips, R.tiles)


# -- reflections -----------------------------------------------------------------------------------


def _reflector(column: Array, k: Array | int) -> Array:
    """The unit vector whose reflection leaves only the first k + 1 elements of a column."""
    place = jnp.arange(column.shape[0])
    below = jnp.where(place >= k, column, 0)
    head = lax.dynamic_index_in_dim(column, k, 0, keepdims=False)
    length = jnp.sqrt(jnp.sum(below * below))
    v = jnp.where(place == k, head + jnp.where(head >= 0, length, -length), below)
    size = jnp.sum(v * v)
    return jnp.where(size > 0, v * lax.rsqrt(jnp.where(size > 0, size, 1)), 0)


@partial(jax.jit, static_argnums=2)
def _reflected(rows: Array, reflector: Array, tiles: tuple[int, ...]) -> Array:
    """Every row reflected, by the tile that holds it."""
    rows = tile_put_sharded(rows, tiles).array
    copies = tile_put_replicated(reflector, tiles).array
    along = jnp.sum(rows * copies, 1, keepdims=True)
    return tile_put_sharded(rows - 2 * along * copies, tiles).array
