"""The self-consistent field on tiles: a loop of two-electron terms, functional, DIIS, eigenvectors.

What is stored where:

    two-electron integrals   a tile for each pair i >= k of basis functions: the matrix (ik|jl)
    the grid                 a tile for some points: values of all basis functions there
    eigenvectors             a tile for each two rows, Jacobi's rotations (tessellate_ipu.linalg)

The density matrix travels to all of these tiles; a row, or a matrix of parts to sum, comes back.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tessellate_ipu import TileShardedArray, tile_map, tile_put_replicated, tile_put_sharded
from tessellate_ipu.linalg import ipu_eigh  # pyright: ignore[reportMissingImports]
from tremula.garden.applications.kohn_sham.functional import EXACT_EXCHANGE, energy_per_volume
from tremula.garden.applications.kohn_sham.molecules import Integrals

N_TILES = 1472  # of a Bow
N_GRID_TILES = 256
N_KEPT = 8  # Fock matrices that DIIS mixes
LEAST_SIZE = 1e-20  # of an error's square: one that is zero by symmetry must not divide


class Molecule(NamedTuple):
    """A molecule as arrays of the tile program."""

    core: jax.Array  # [n, n]
    overlap: jax.Array  # [n, n]
    to_orthogonal: jax.Array  # [n, n]: the inverse root of the overlap
    pair_blocks: jax.Array  # [pairs, n, n]: (ik|jl) of the pairs i >= k
    basis: jax.Array  # [4, tiles, points, n]: values and derivatives
    weights: jax.Array  # [tiles, points]
    guess: jax.Array  # [n, n]
    nuclear_energy: jax.Array
    is_occupied: jax.Array  # [n]: 1 for the orbitals of lowest energy


class ScfState(NamedTuple):
    """State of the loop."""

    iteration: jax.Array
    density: jax.Array  # [n, n]
    energy: jax.Array
    error: jax.Array  # the largest element of FDS - SDF: zero when all fits
    focks: jax.Array  # [kept, n, n]: the last ones, for DIIS
    errors: jax.Array  # [kept, n * n]
    energies: jax.Array  # [iterations]


@dataclass(frozen=True, slots=True)
class Precision:
    """A number type, and the error at which its loop may end."""

    dtype: type
    error: float
    regularisation: float  # of DIIS's equations, whose matrix is nearly singular in the end


DOUBLE = Precision(np.float64, 1e-7, 1e-12)
SINGLE = Precision(np.float32, 3e-4, 1e-6)


def problem(integrals: Integrals, precision: Precision) -> Molecule:
    """Pairs in place of the whole repulsion tensor, the grid in parts, numbers of one type."""
    n, dtype = integrals.n_functions, precision.dtype
    i, k = np.tril_indices(n)
    values, vectors = np.linalg.eigh(integrals.overlap)
    n_points = -(-len(integrals.weights) // N_GRID_TILES)
    padding = N_GRID_TILES * n_points - len(integrals.weights)
    basis = np.pad(integrals.basis, ((0, 0), (0, padding), (0, 0)))
    weights = np.pad(integrals.weights, (0, padding))
    arrays = {
        "core": integrals.core,
        "overlap": integrals.overlap,
        "to_orthogonal": (vectors / np.sqrt(values)) @ vectors.T,
        "pair_blocks": integrals.repulsion[i, k],
        "basis": basis.reshape(4, N_GRID_TILES, n_points, n),
        "weights": weights.reshape(N_GRID_TILES, n_points),
        "guess": integrals.guess,
        "nuclear_energy": np.array(integrals.nuclear_energy),
        "is_occupied": np.arange(n) < integrals.n_pairs,
    }
    return Molecule(**{name: jnp.asarray(x, dtype) for name, x in arrays.items()})


# -- the terms -------------------------------------------------------------------------------------


def two_electron(pair_blocks: jax.Array, density: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Coulomb and exchange matrices, [n, n] each.

    The tile of a pair (i, k) has all (ik|jl). It gives one element of the Coulomb matrix, the sum
    of (ik|jl) D[j, l]; and two rows that exchange is made of, (ik|jl) D[k, l] and (ik|jl) D[i, l].
    """
    n = len(density)
    i, k = np.tril_indices(n)
    tiles = tuple((np.arange(len(i)) % N_TILES).tolist())
    blocks = tile_put_sharded(pair_blocks, tiles)
    everywhere = tile_put_replicated(density, tiles)
    own_rows = tile_put_sharded(density[np.stack([k, i], axis=1)], tiles)  # [pairs, 2, n]

    products = tile_map(lax.mul_p, blocks, everywhere)
    elements = tile_map(lax.reduce_sum_p, products, axes=(0, 1), out_sharding=None)
    parts = _product(blocks, own_rows, ((1,), (1,)))  # [pairs, n, 2]

    pair_of = np.zeros((n, n), np.int64)
    pair_of[i, k] = pair_of[k, i] = np.arange(len(i))
    coulomb = elements.array[pair_of]
    of_second = np.arange(n)[:, None] < np.arange(n)  # row i of pair (k, i) is its second part
    both = jnp.moveaxis(parts.array, 2, 1).reshape(-1, n)  # [2 * pairs, n]
    exchange = both[2 * pair_of + of_second].sum(1)
    return coulomb, exchange


def exchange_correlation(
    basis: jax.Array, weights: jax.Array, density: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The functional's energy, and its derivative by the density matrix, [n, n]."""
    tiles = tuple(range(N_GRID_TILES))
    values, *gradients = (tile_put_sharded(one, tiles) for one in basis)
    everywhere = tile_put_replicated(density, tiles)
    with_density = _product(values, everywhere, ((1,), (0,)))  # [tiles, points, n]
    rho = (with_density.array * values.array).sum(2)
    of_rho = [2 * (with_density.array * one.array).sum(2) for one in gradients]
    sigma = sum(g * g for g in of_rho)

    def energy(rho: jax.Array, sigma: jax.Array) -> jax.Array:
        return (weights * energy_per_volume(rho, sigma)).sum()

    total, (by_rho, by_sigma) = jax.value_and_grad(energy, argnums=(0, 1))(rho, sigma)
    along = sum(g[..., None] * one.array for g, one in zip(of_rho, gradients, strict=True))
    half = 0.5 * by_rho[..., None] * values.array + 2 * by_sigma[..., None] * along
    of_tile = _product(values, TileShardedArray(half, tiles), ((0,), (0,)))  # [tiles, n, n]
    potential = of_tile.array.sum(0)
    return total, potential + potential.T


def _product(a: TileShardedArray, b: TileShardedArray, axes: tuple) -> TileShardedArray:
    """On each tile the product of two matrices, summed over an axis of each."""
    return tile_map(
        lax.dot_general_p,
        a,
        b,
        dimension_numbers=(axes, ((), ())),
        precision=None,
        preferred_element_type=None,
        out_sharding=None,
    )


# -- the loop --------------------------------------------------------------------------------------


def self_consistent(molecule: Molecule, precision: Precision, n_most: int) -> ScfState:
    """Iterate until density and field belong together, at most `n_most` times."""
    n, dtype = len(molecule.core), molecule.core.dtype
    start = ScfState(
        iteration=jnp.int32(0),
        density=molecule.guess,
        energy=jnp.zeros((), dtype),
        error=jnp.ones((), dtype),
        focks=jnp.zeros((N_KEPT, n, n), dtype),
        errors=jnp.zeros((N_KEPT, n * n), dtype),
        energies=jnp.zeros(n_most, dtype),
    )

    def goes_on(state: ScfState) -> jax.Array:
        # The first density is a guess: by symmetry it may fit its field without being right.
        is_found = (state.error <= precision.error) & (state.iteration > 1)
        return (state.iteration < n_most) & ~is_found

    return lax.while_loop(goes_on, lambda state: _step(molecule, state, precision), start)


def _step(molecule: Molecule, state: ScfState, precision: Precision) -> ScfState:
    density, root = state.density, molecule.to_orthogonal
    coulomb, exchange = two_electron(molecule.pair_blocks, density)
    functional, potential = exchange_correlation(molecule.basis, molecule.weights, density)
    field = coulomb - EXACT_EXCHANGE / 2 * exchange
    fock = molecule.core + field + potential
    energy = molecule.nuclear_energy + functional + (density * (molecule.core + field / 2)).sum()

    commutator = fock @ density @ molecule.overlap
    error = root @ (commutator - commutator.T) @ root
    place = state.iteration % N_KEPT
    focks = lax.dynamic_update_index_in_dim(state.focks, fock, place, 0)
    errors = lax.dynamic_update_index_in_dim(state.errors, error.ravel(), place, 0)
    is_kept = jnp.arange(N_KEPT) <= state.iteration
    mixed = jnp.einsum("k,kij->ij", _diis(errors, is_kept, precision.regularisation), focks)

    vectors, _ = ipu_eigh(root @ mixed @ root, symmetrize_input=True)
    orbitals = root @ vectors * molecule.is_occupied
    return ScfState(
        iteration=state.iteration + 1,
        density=2 * orbitals @ orbitals.T,
        energy=energy,
        error=jnp.abs(error).max(),
        focks=focks,
        errors=errors,
        energies=lax.dynamic_update_index_in_dim(state.energies, energy, state.iteration, 0),
    )


def _diis(errors: jax.Array, is_kept: jax.Array, regularisation: float) -> jax.Array:
    """[kept]: coefficients of sum 1 for which the mixture of errors is least.

    They solve B c = 1 up to a factor, with B the products of errors. Errors fall by orders of
    magnitude, so B is scaled to a diagonal of ones first; empty places count nothing.
    """
    products = errors @ errors.T
    size = jnp.maximum(jnp.diag(products), LEAST_SIZE)
    scale = jnp.where(is_kept, lax.rsqrt(size), 0)
    scaled = products * scale[:, None] * scale
    vectors, values = ipu_eigh(scaled, symmetrize_input=True, sort_eigenvalues=False)
    inverse = 1 / (jnp.abs(values) + regularisation)
    solved = scale * (vectors @ (inverse * (vectors.T @ scale)))
    return solved / solved.sum()
