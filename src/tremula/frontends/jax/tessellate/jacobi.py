"""Eigenvectors of a symmetric matrix over tiles, by Jacobi's rotations of pairs of columns.

`ipu_eigh` keeps the columns of the pairs in two halves, so that all rotations are slices. The steps
under TessellateIPU's names (`ipu_jacobi_eigh_body` and the primitives it maps) do the same with
columns that carry their numbers, two words before the numbers of the matrix.

Loops of the program: the body is compiled once. Each tile holds one pair, works on it alone, and
gets the few numbers it needs from the others by exchange.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from tremula.frontends.jax.tessellate.arrays import (
    TileShardedArray,
    tile_constant_sharded,
    tile_data_barrier,
    tile_gather,
    tile_put_replicated,
    tile_put_sharded,
)
from tremula.frontends.jax.tessellate.mapping import tile_map
from tremula.frontends.jax.tessellate.primitives import make_primitive, square_size

N_SWEEPS = 9  # of rotations of all pairs: enough for float32 at 512 rows, converging quadratically
INDEX_PREFIX = 2  # words before a column: its number, twice, for alignment
Columns = tuple[TileShardedArray, ...]  # of pairs: first and second of the matrix, and of V


def ipu_eigh(
    x: Array,
    *,
    lower: bool = True,
    symmetrize_input: bool = False,
    sort_eigenvalues: bool = True,
    num_iters: int | None = None,
) -> tuple[Array, Array]:
    """Eigenvectors (columns) and eigenvalues of a symmetric matrix, by Jacobi's rotations.

    The rows are paired; tile i holds pair i. All pairs are rotated at once, then they change
    partners as in a round-robin tournament, so that after n - 1 rounds everyone has met.
    `num_iters` is the number of such sweeps. An odd matrix gets one more row, of zeros.
    """
    size = square_size(x, "ipu_eigh")
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


def ipu_jacobi_eigh(x: Array, num_iters: int = 1) -> tuple[Array, Array]:
    """The matrix after some sweeps, nearly diagonal, and the transposed product of rotations."""
    size = square_size(x, "ipu_jacobi_eigh")
    if size % 2:
        raise ValueError(f"ipu_jacobi_eigh takes a matrix of even size, got {size} rows.")
    rotated, vectors = _sweeps(jnp.asarray(x), size, num_iters)
    return rotated, vectors.T


def _sweeps(a: Array, n: int, count: int) -> tuple[Array, Array]:
    """The matrix after all rotations, nearly diagonal, and their product."""
    half, tiles = n // 2, tuple(range(n // 2))
    order = _next_partners(n)

    def round_(_: object, state: tuple) -> tuple:
        first, second, v_first, v_second = state  # rows of the pairs, of the matrix and of V^T
        cosine, sine = _rotations(first, second, half)
        first, second = _rotated(first, second, cosine[:, None], sine[:, None])
        v_first, v_second = _rotated(v_first, v_second, cosine[:, None], sine[:, None])
        # Columns are in the order of the rows: those of the pairs are the two halves.
        rows = []
        for row in (first, second):
            left, right = _rotated(row[:, :half], row[:, half:], cosine, sine)
            rows.append(jnp.concatenate([left, right], 1)[:, order])
        vectors = _repaired([v_first, v_second], order, half, tiles)
        return _repaired(rows, order, half, tiles) + vectors

    eye = jnp.eye(n, dtype=a.dtype)
    start = (a[:half], a[half:], eye[:half], eye[half:])
    state = tuple(tile_put_sharded(part, tiles).array for part in start)
    first, second, v_first, v_second = lax.fori_loop(0, count * (n - 1), round_, state)
    return jnp.concatenate([first, second]), jnp.concatenate([v_first, v_second]).T


def _next_partners(n: int) -> np.ndarray:
    """Which row is at each place in the next round: one stays, all others move on by a place."""
    half = n // 2
    ring = [*range(half), *range(n - 1, half - 1, -1)]  # around the table
    turned = [ring[0], ring[-1], *ring[1:-1]]
    order = np.empty(n, np.int64)
    order[:half] = turned[:half]
    order[half:] = turned[half:][::-1]
    return order


def _rotations(first: Array, second: Array, half: int) -> tuple[Array, Array]:
    """Cosine and sine for each pair."""
    diagonal = jnp.arange(half)
    app, apq = first[diagonal, diagonal], first[diagonal, diagonal + half]
    aqq = second[diagonal, diagonal + half]
    return _rotation(app, apq, aqq)


def _rotation(app: Array, apq: Array, aqq: Array) -> tuple[Array, Array]:
    """Cosine and sine that make the element between two columns zero."""
    is_done = jnp.abs(apq) <= jnp.finfo(apq.dtype).tiny
    theta = (aqq - app) / (2 * jnp.where(is_done, 1.0, apq))
    tangent = jnp.where(theta >= 0, 1.0, -1.0) / (jnp.abs(theta) + jnp.sqrt(theta * theta + 1))
    tangent = jnp.where(is_done, 0.0, tangent)
    cosine = lax.rsqrt(tangent * tangent + 1)
    return cosine, tangent * cosine


def _rotated(first: Array, second: Array, cosine: Array, sine: Array) -> tuple[Array, Array]:
    return cosine * first - sine * second, sine * first + cosine * second


def _repaired(rows: list, order: np.ndarray, half: int, tiles: tuple[int, ...]) -> tuple:
    """Rows with their partners of the next round, on the tiles of the pairs."""
    moved = jnp.concatenate(rows)[order]
    return tuple(tile_put_sharded(part, tiles).array for part in (moved[:half], moved[half:]))


# -- which columns meet ----------------------------------------------------------------------------


def jacobi_initial_rotation_set(N: int) -> np.ndarray:  # noqa: N803
    """Pairs of neighbours: uint32 [N / 2, 2]."""
    return np.arange(N, dtype=np.uint32).reshape(-1, 2)


def jacobi_initial_pqindices(N: int) -> tuple[np.ndarray, np.ndarray]:  # noqa: N803
    """The numbers of the first and of the second columns of the pairs, each twice."""
    first, second = jacobi_initial_rotation_set(N).T
    return np.stack([first, first], 1), np.stack([second, second], 1)


def jacobi_next_rotation_set(rot: np.ndarray) -> np.ndarray:
    """The pairs of the next round: the first column stays, all others move on by a place."""
    rot = np.asarray(rot)
    first, second = _moved(len(rot))
    columns = np.concatenate([rot[:, 0], rot[:, 1]])
    return np.stack([columns[first], columns[second]], 1)


def _moved(half: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the columns of the next pairs are now, of all first and then all second ones."""
    first, second = np.arange(half), np.arange(half, 2 * half)
    if half == 1:
        return first, second
    return (
        np.concatenate([first[:1], second[:1], first[1:-1]]),
        np.concatenate([second[1:], first[-1:]]),
    )


def jacobi_sort_rotation_set(rotset: np.ndarray) -> np.ndarray:
    """Pairs with the smaller number first."""
    return np.sort(np.asarray(rotset), axis=1)


def permute_pq_indices(
    pindices: np.ndarray, qindices: np.ndarray, rotset_permute_mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of pairs, swapped where a mask is false."""
    mask = np.asarray(rotset_permute_mask)
    return np.where(mask, pindices, qindices), np.where(mask, qindices, pindices)


def tile_sharded_pq_columns(
    pcols: Array, qcols: Array, tiles: tuple[int, ...]
) -> tuple[TileShardedArray, TileShardedArray]:
    """First and second columns of the pairs, [pairs, n], with their numbers, on tiles."""
    if np.shape(pcols) != np.shape(qcols) or np.ndim(pcols) != 2:
        raise ValueError(
            f"two matrices of one shape expected, got {np.shape(pcols)} and {np.shape(qcols)}."
        )
    numbers = jacobi_initial_pqindices(2 * np.shape(pcols)[0])
    first, second = (
        jnp.concatenate([prefix.view(np.float32), jnp.asarray(columns, jnp.float32)], 1)
        for prefix, columns in zip(numbers, (pcols, qcols), strict=True)
    )
    return tile_put_sharded(first, tiles), tile_put_sharded(second, tiles)


def tile_rotate_columns(
    pcols: TileShardedArray, qcols: TileShardedArray
) -> tuple[TileShardedArray, TileShardedArray]:
    """Columns with their partners of the next round, on the tiles of the pairs."""
    columns = TileShardedArray.concatenate([pcols, qcols])
    first, second = _moved(len(pcols))
    return (
        tile_gather(columns, first.tolist(), pcols.tiles),
        tile_gather(columns, second.tolist(), qcols.tiles),
    )


# -- what a tile does with its pair ----------------------------------------------------------------


def _number(column: Array) -> Array:
    """The number of a column that carries it."""
    return lax.bitcast_convert_type(column[0], jnp.uint32)


def _schur2(pq: Array, pcol: Array, qcol: Array) -> Array:
    return jnp.stack(_rotation(pcol[pq[0]], pcol[pq[1]], qcol[pq[1]]))


def _first_step(pcol: Array, qcol: Array) -> list[Array]:
    """Rotate the two columns, and the rows of their numbers; p < q is not expected."""
    p, q = _number(pcol), _number(qcol)
    swaps, low, high = p > q, jnp.minimum(p, q), jnp.maximum(p, q)
    first, second = _swapped(swaps, pcol[INDEX_PREFIX:], qcol[INDEX_PREFIX:])
    cosine, sine = _rotation(first[low], first[high], second[high])
    first, second = _rotated(first, second, cosine, sine)
    place = jnp.arange(first.shape[0], dtype=jnp.uint32)
    on_first = cosine * first[low] - sine * first[high]
    on_second = sine * second[low] + cosine * second[high]
    first = jnp.where(place == low, on_first, jnp.where(place == high, 0, first))
    second = jnp.where(place == high, on_second, jnp.where(place == low, 0, second))
    columns = _with_numbers((pcol, qcol), _swapped(swaps, first, second))
    return [jnp.stack([low, high]), jnp.stack([cosine, sine]), *columns]


def _swapped(swaps: Array, first: Array, second: Array) -> tuple[Array, Array]:
    return jnp.where(swaps, second, first), jnp.where(swaps, first, second)


def _with_numbers(before: tuple, columns: tuple) -> list[Array]:
    pairs = zip(before, columns, strict=True)
    return [jnp.concatenate([old[:INDEX_PREFIX], new]) for old, new in pairs]


def _second_step(
    cs_arr: Array, rotset_sorted_arr: Array, rotset_idx_ignored: Array, pcol: Array, qcol: Array
) -> list[Array]:
    """Rotate the rows of all other pairs in the two columns of this one."""
    n_pairs = cs_arr.shape[0]
    is_own = jnp.arange(n_pairs, dtype=jnp.uint32) == rotset_idx_ignored.reshape(())
    cosine, sine = jnp.where(is_own, 1, cs_arr[:, 0]), jnp.where(is_own, 0, cs_arr[:, 1])
    low, high = rotset_sorted_arr[:n_pairs, 0], rotset_sorted_arr[:n_pairs, 1]
    columns = []
    for column in (pcol[INDEX_PREFIX:], qcol[INDEX_PREFIX:]):
        on_low, on_high = _rotated(column[low], column[high], cosine, sine)
        columns.append(column.at[low].set(on_low).at[high].set(on_high))
    return [cs_arr, *_with_numbers((pcol, qcol), tuple(columns))]


def _eigenvectors(cs: Array, vpcol: Array, vqcol: Array) -> list[Array]:
    """Rotate two columns of the product of rotations."""
    swaps = _number(vpcol) > _number(vqcol)
    columns = _swapped(swaps, vpcol[INDEX_PREFIX:], vqcol[INDEX_PREFIX:])
    rotated = _swapped(swaps, *_rotated(*columns, cs[0], cs[1]))
    return _with_numbers((vpcol, vqcol), rotated)


jacobi_sym_schur2_p = make_primitive("jacobi_sym_schur2", _schur2)
jacobi_update_first_step_p = make_primitive(
    "jacobi_update_first_step", _first_step, multiple_results=True
)
jacobi_update_second_step_p = make_primitive(
    "jacobi_update_second_step", _second_step, multiple_results=True
)
jacobi_update_eigenvectors_p = make_primitive(
    "jacobi_update_eigenvectors", _eigenvectors, multiple_results=True
)


def ipu_jacobi_eigh_body(idx: object, inputs: Columns) -> Columns:
    """A round: all pairs are rotated, then columns move to their next partners."""
    del idx
    pcols, qcols, vpcols, vqcols = inputs
    own = tile_constant_sharded(np.arange(len(pcols), dtype=np.uint32), pcols.tiles)
    rotset, cs, pcols, qcols = tile_map(jacobi_update_first_step_p, pcols, qcols)
    everywhere = (tile_put_replicated(part.array, pcols.tiles) for part in (cs, rotset))
    _, pcols, qcols = tile_map(jacobi_update_second_step_p, *everywhere, own, pcols, qcols)
    cs_of_vectors = tile_put_sharded(cs.array, vpcols.tiles)
    vpcols, vqcols = tile_map(jacobi_update_eigenvectors_p, cs_of_vectors, vpcols, vqcols)
    pcols, qcols, vpcols, vqcols = tile_data_barrier(pcols, qcols, vpcols, vqcols)
    return *tile_rotate_columns(pcols, qcols), *tile_rotate_columns(vpcols, vqcols)


def ipu_jacobi_eigh_iteration(idx: object, all_AV_cols: Columns) -> Columns:
    """A sweep: rounds until every column has met every other and is back in its place."""
    del idx
    size = 2 * all_AV_cols[0].shape[0]
    return jax.lax.fori_loop(1, size, ipu_jacobi_eigh_body, all_AV_cols)
