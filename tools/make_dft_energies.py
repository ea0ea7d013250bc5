"""Makes dft_energies.npz of the garden: energies of distorted molecules, by our own DFT.

python tools/make_dft_energies.py 40     # forty of each molecule; about two seconds each

Each molecule's atoms are moved by chance from where they belong; `kohn_sham` of the garden computes
the energy (B3LYP, STO-3G, float64 on this computer). It needs tremula[jax,dft]. Columns:

    z         int64[n_atoms]        atomic numbers
    pos       float32[n_atoms, 3]   places in ångström
    size      int64[n]              atoms of each molecule
    energy    float64[n]            hartree
"""

import sys
import time
from pathlib import Path

import jax
import numpy as np

from tremula.frontends.jax.function import JitFunction
from tremula.garden.applications.kohn_sham.main import solver
from tremula.garden.applications.kohn_sham.molecules import integrals_of
from tremula.garden.applications.kohn_sham.scf import DOUBLE, problem

DATA = Path(__file__).resolve().parent.parent / "src/tremula/garden/models/datasets/data"
TARGET = DATA / "dft_energies.npz"
NUMBER = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
# Experimental geometries in ångström, from the CCCBDB (computational chemistry comparison).
MOLECULES = {
    "H2": "H 0 0 0; H 0 0 0.7414",
    "HF": "F 0 0 0; H 0 0 0.9168",
    "H2O": "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692",
    "NH3": "N 0 0 0; H 0 -0.9377 -0.3816; H 0.8121 0.4689 -0.3816; H -0.8121 0.4689 -0.3816",
    "CH4": (
        "C 0 0 0; H 0.6276 0.6276 0.6276; H 0.6276 -0.6276 -0.6276;"
        " H -0.6276 0.6276 -0.6276; H -0.6276 -0.6276 0.6276"
    ),
}
MOVED_ANGSTROM = 0.08  # deviation of each coordinate: energies then differ by an electronvolt or so
MOST_ERROR = 1e-5  # hartree, against PySCF


def main() -> None:
    n_each, random = int(sys.argv[1]), np.random.default_rng(0)
    numbers, places, sizes, energies = [], [], [], []
    with jax.enable_x64(True):
        solve = solver(DOUBLE)
        for name, atoms in MOLECULES.items():
            began = time.perf_counter()
            symbols = [atom.split()[0] for atom in atoms.split(";")]
            first = np.array([atom.split()[1:] for atom in atoms.split(";")], float)
            for _ in range(n_each):
                pos = (first + random.normal(0, MOVED_ANGSTROM, first.shape)).astype(np.float32)
                energies.append(energy_of(solve, name, symbols, pos))
                numbers += [NUMBER[symbol] for symbol in symbols]
                places.append(pos)
                sizes.append(len(symbols))
            print(f"{name}: {n_each} in {time.perf_counter() - began:.0f} s", flush=True)
    np.savez_compressed(
        TARGET, z=np.array(numbers), pos=np.concatenate(places), size=np.array(sizes),
        energy=np.array(energies),
    )  # fmt: skip


def energy_of(solve: JitFunction, name: str, symbols: list[str], pos: np.ndarray) -> float:
    atoms = "; ".join(
        f"{symbol} {x:.8f} {y:.8f} {z:.8f}" for symbol, (x, y, z) in zip(symbols, pos, strict=True)
    )
    integrals = integrals_of(atoms, name)
    energy = float(solve(problem(integrals, DOUBLE)).energy)
    assert abs(energy - integrals.reference_energy) < MOST_ERROR, (
        atoms,
        energy,
        integrals.reference_energy,
    )
    return energy


if __name__ == "__main__":
    main()
