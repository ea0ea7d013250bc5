"""Density functional theory: the functional, two-electron terms, energies beside PySCF's."""

from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("pyscf")
import jax.numpy as jnp  # noqa: E402 - after the check
from pyscf.dft import libxc  # noqa: E402

from tremula.garden.application import Settings  # noqa: E402
from tremula.garden.applications.kohn_sham import functional, scf  # noqa: E402
from tremula.garden.applications.kohn_sham.main import compared  # noqa: E402
from tremula.garden.applications.kohn_sham.molecules import integrals, integrals_of  # noqa: E402


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def water():
    return integrals("H2O", "sto-3g")


def densities(n=60):
    """Densities from outside a molecule to a nucleus, with gradients from none to steep."""
    random = np.random.default_rng(0)
    rho = 10 ** random.uniform(-6, 2, n)
    return rho, rho ** (4 / 3) * 10 ** random.uniform(-2, 1, n)


@pytest.mark.slow
def test_the_functional_is_libxc_s():
    """Energy and both derivatives agree to nearly all digits."""
    rho, slope = densities()
    zero = np.zeros_like(rho)
    expected, (by_rho, by_sigma, *_), *_ = libxc.eval_xc("b3lyp", [rho, slope, zero, zero], deriv=1)
    arrays = jnp.asarray(rho), jnp.asarray(slope**2)
    assert np.allclose(functional.energy_per_volume(*arrays), expected * rho, rtol=1e-12)
    total = jax.grad(lambda r, s: functional.energy_per_volume(r, s).sum(), argnums=(0, 1))
    result = jax.jit(total)(*arrays)
    assert np.allclose(result[0], by_rho, rtol=1e-10)
    assert np.allclose(result[1], by_sigma, rtol=1e-10)
    assert libxc.hybrid_coeff("b3lyp") == functional.EXACT_EXCHANGE


@pytest.mark.slow
def test_empty_space_costs_nothing_and_has_derivatives():
    """No density, no energy; derivatives are numbers, in float32 too."""
    nothing = jnp.zeros(3, jnp.float32)
    total = jax.jit(
        jax.value_and_grad(lambda r, s: functional.energy_per_volume(r, s).sum(), argnums=(0, 1))
    )
    energy, slopes = total(nothing, nothing)
    assert float(energy) == 0
    assert np.isfinite(slopes).all()
    _, at_rest = total(nothing + 0.1, nothing)
    assert np.isfinite(at_rest).all()


@pytest.mark.slow
def test_two_electron_terms_are_the_sums_they_stand_for(water):
    """Coulomb and exchange from pairs equal the sums over the whole tensor."""
    random = np.random.default_rng(1)
    density = random.standard_normal((water.n_functions,) * 2)
    density += density.T
    given = scf.problem(water, scf.DOUBLE)
    coulomb, exchange = jax.jit(scf.two_electron)(given.pair_blocks, jnp.asarray(density))
    assert np.allclose(coulomb, np.einsum("ijkl,kl->ij", water.repulsion, density))
    assert np.allclose(exchange, np.einsum("ikjl,kl->ij", water.repulsion, density))


def test_electrons_are_all_there(water):
    """The density of a matrix, summed over the grid, counts its electrons."""
    rho = np.einsum("mi,ij,mj->m", water.basis[0], water.guess, water.basis[0])
    expected = (water.guess * water.overlap).sum()
    assert (water.weights * rho).sum() == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_the_potential_is_the_derivative_of_the_energy(water):
    """A small change of the density matrix changes the functional's energy as the matrix says."""
    given = scf.problem(water, scf.DOUBLE)
    change = np.random.default_rng(2).standard_normal(water.guess.shape)
    change = 1e-5 * (change + change.T)
    energy = jax.jit(partial(scf.exchange_correlation, given.basis, given.weights))
    _, potential = energy(given.guess)
    ahead, behind = energy(given.guess + change)[0], energy(given.guess - change)[0]
    expected = float(2 * (potential * change).sum())
    assert float(ahead - behind) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_mixtures_leave_the_least_error():
    """DIIS finds weights of sum 1; with two errors that cancel, nothing is left."""
    errors = np.zeros((scf.N_KEPT, 4))
    errors[0], errors[1] = [1, 2, 0, 0], [-2, -4, 0, 0]
    is_kept = np.arange(scf.N_KEPT) < 2
    weights = np.asarray(jax.jit(scf._diis)(jnp.asarray(errors), is_kept, 1e-12))
    assert weights[:2] == pytest.approx([2 / 3, 1 / 3], abs=1e-4)
    assert weights[2:] == pytest.approx(0)


@pytest.mark.slow
def test_a_guess_that_fits_by_symmetry_is_not_the_end():
    """The guess of H2 has no error and yet is no density of two electrons."""
    molecule = integrals_of("H 0 0 0; H 0 0 0.7414", "H2")
    assert_energy_is_pyscf_s(molecule)


def assert_energy_is_pyscf_s(molecule):
    """In float64, within 1e-5 hartree, after fewer iterations than the most."""
    solve = jax.jit(partial(scf.self_consistent, precision=scf.DOUBLE, n_most=20))
    result = solve(scf.problem(molecule, scf.DOUBLE))
    assert float(result.energy) == pytest.approx(molecule.reference_energy, abs=1e-5)
    assert int(result.iteration) < 20


# H2 is above.
MOLECULES = [
    pytest.param("CH4", "sto-3g", marks=pytest.mark.wide),
    pytest.param("H2O", "6-31g", marks=pytest.mark.wide),
    pytest.param("benzene", "sto-3g", marks=pytest.mark.wide),
]


@pytest.mark.parametrize(("name", "basis"), MOLECULES)
def test_energies_are_pyscf_s(name, basis):
    """In float64, within 1e-5 hartree; JAX's own compiler runs the same function."""
    assert_energy_is_pyscf_s(integrals(name, basis))


@pytest.mark.wide
def test_energies_of_host_and_tiles(water):
    """The application's two executions: 1e-5 hartree in float64, 1e-3 in float32 on tiles."""
    errors, modelled = compared(water, Settings())
    assert abs(errors.of_host) < 1e-5
    assert abs(errors.of_tiles) < 1e-3
    assert modelled.cycles > 0


def test_unknown_molecules_are_named():
    """The message says which there are."""
    with pytest.raises(ValueError, match=r"unknown molecule 'H3O': take one of H2O, CH4, benzene"):
        integrals("H3O")
