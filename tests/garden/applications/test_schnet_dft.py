"""Energies that the garden computed itself: what the file holds, and what is learnt from it."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch_geometric")

from tremula.garden.applications.schnet_dft.energies import FILE, energies
from tremula.garden.models.datasets.qm9 import HARTREE_IN_EV

SYMBOLS = {1: "H", 6: "C", 7: "N", 8: "O", 9: "F"}


def test_atoms_explain_the_mean_and_shapes_are_left():
    """Of energies of hundreds of electronvolt, about one is left; a fifth is not learnt from."""
    result = energies()
    left = np.concatenate([part.columns["y"].values for part in (result.known, result.new)])
    assert len(result.known) == 4 * len(result.new)
    assert abs(result.known.columns["y"].values.mean()) < 1e-3
    assert 0.1 < left.std() < 3
    with np.load(FILE) as arrays:
        assert arrays["energy"].std() * HARTREE_IN_EV > 100


@pytest.mark.slow
def test_the_file_holds_what_density_functional_theory_computes():
    """One of the molecules, computed again."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("pyscf")
    from tremula.garden.applications.kohn_sham import scf
    from tremula.garden.applications.kohn_sham.molecules import integrals_of

    with np.load(FILE) as arrays:
        z, pos, size, energy = (arrays[name] for name in ("z", "pos", "size", "energy"))
    one = 50  # hydrogen fluoride, the smallest that is not a special case
    atoms = slice(size[:one].sum(), size[: one + 1].sum())
    text = "; ".join(
        f"{SYMBOLS[number]} {x:.8f} {y:.8f} {height:.8f}"
        for number, (x, y, height) in zip(z[atoms].tolist(), pos[atoms], strict=True)
    )
    with jax.enable_x64(True):
        solve = jax.jit(partial(scf.self_consistent, precision=scf.DOUBLE, n_most=20))
        result = solve(scf.problem(integrals_of(text, "HF"), scf.DOUBLE))
    assert float(result.energy) == pytest.approx(energy[one], abs=1e-6)
