"""Molecules, and what PySCF computes of them once: integrals of basis functions, and a grid."""

from dataclasses import dataclass

import numpy as np

# Experimental geometries in ångström, from the CCCBDB (computational chemistry comparison).
GEOMETRIES = {
    "H2O": "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692",
    "CH4": (
        "C 0 0 0; H 0.6276 0.6276 0.6276; H 0.6276 -0.6276 -0.6276;"
        " H -0.6276 0.6276 -0.6276; H -0.6276 -0.6276 0.6276"
    ),
    "benzene": "; ".join(
        f"{symbol} {radius * np.cos(angle):.6f} {radius * np.sin(angle):.6f} 0"
        for symbol, radius in (("C", 1.3970), ("H", 2.4810))
        for angle in np.arange(6) * np.pi / 3
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Integrals:
    """A molecule in a basis of n functions and on a grid of m points; energies in hartree."""

    name: str
    n_pairs: int  # of electrons: every orbital that is occupied holds two
    nuclear_energy: float  # of the nuclei among themselves
    core: np.ndarray  # [n, n]: kinetic energy, and attraction by the nuclei
    overlap: np.ndarray  # [n, n]
    repulsion: np.ndarray  # [n, n, n, n]: (ij|kl)
    basis: np.ndarray  # [4, m, n]: values on the grid, and their derivatives along x, y, z
    weights: np.ndarray  # [m]: volumes of the grid's points
    guess: np.ndarray  # [n, n]: a density matrix to begin with, of atoms side by side
    reference_energy: float  # PySCF's

    @property
    def n_functions(self) -> int:
        return len(self.core)


def integrals(name: str, basis: str = "sto-3g", grid_level: int = 0) -> Integrals:
    """Integrals of a molecule of GEOMETRIES; PySCF computes its energy, too, to compare with."""
    if name not in GEOMETRIES:
        raise ValueError(f"unknown molecule {name!r}: take one of {', '.join(GEOMETRIES)}.")
    return integrals_of(GEOMETRIES[name], name, basis, grid_level)


def integrals_of(atoms: str, name: str, basis: str = "sto-3g", grid_level: int = 0) -> Integrals:
    """Integrals and grid of any molecule: atoms are "O 0 0 0.1; H …", in ångström."""
    from pyscf import dft, gto

    molecule = gto.M(atom=atoms, basis=basis, verbose=0)
    solver = dft.RKS(molecule, xc="b3lyp")
    solver.grids.level = grid_level
    solver.conv_tol = 1e-10
    guess = solver.get_init_guess()
    solver.kernel()
    if not solver.converged:
        raise RuntimeError(f"PySCF found no self-consistent density of {name} in {basis}.")
    return Integrals(
        name=name,
        n_pairs=molecule.nelectron // 2,
        nuclear_energy=float(molecule.energy_nuc()),
        core=solver.get_hcore(),
        overlap=solver.get_ovlp(),
        repulsion=molecule.intor("int2e"),
        basis=dft.numint.eval_ao(molecule, solver.grids.coords, deriv=1),
        weights=np.asarray(solver.grids.weights),
        guess=np.asarray(guess),
        reference_energy=float(solver.e_tot),
    )
