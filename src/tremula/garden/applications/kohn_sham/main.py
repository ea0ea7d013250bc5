"""Energies of molecules: in float64 on this computer, in float32 on tiles, against PySCF's."""

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from tremula.frontends.jax.function import JitFunction, jit
from tremula.garden.application import Findings, Modelled, Settings, modelled_report
from tremula.garden.applications.kohn_sham.molecules import Integrals, integrals
from tremula.garden.applications.kohn_sham.scf import (
    DOUBLE,
    SINGLE,
    Precision,
    problem,
    self_consistent,
)
from tremula.ir.settings import configured

N_MOST = 20  # iterations
MOLECULES_TINY = (("H2O", "sto-3g"),)
MOLECULES = (("H2O", "6-31g"), ("CH4", "6-31g"), ("benzene", "sto-3g"))


@dataclass(frozen=True, slots=True)
class Errors:
    """Of one molecule's energy, in hartree; and the energies of the iterations on tiles."""

    of_host: float
    of_tiles: float
    energies: np.ndarray


def run(settings: Settings) -> Findings:
    result, modelled = [], None
    for name, basis in MOLECULES_TINY if settings.tiny else MOLECULES:
        molecule = integrals(name, basis)
        settings.show(
            f"{name} in {basis}: {molecule.n_functions} functions, {len(molecule.weights)} points;"
            f" PySCF: {molecule.reference_energy:.6f} hartree"
        )
        errors, modelled = compared(molecule, settings)
        result.append(errors)
    return Findings(
        results={
            "largest_error_hartree_float64": max(abs(one.of_host) for one in result),
            "largest_error_hartree_float32": max(abs(one.of_tiles) for one in result),
        },
        modelled=modelled,
        curves={"distance from the energy found": np.abs(result[-1].energies[:-1]).tolist()},
    )


def compared(molecule: Integrals, settings: Settings) -> tuple[Errors, Modelled]:
    """A molecule's energies against PySCF's, and what an iteration on tiles takes."""
    with jax.enable_x64(True):
        on_host = solver(DOUBLE)(problem(molecule, DOUBLE))
        of_host = float(on_host.energy) - molecule.reference_energy
    settings.show(f"  float64 here: {of_host:+.1e} hartree, {int(on_host.iteration)} iterations")
    molecule_arrays, on_tiles = problem(molecule, SINGLE), solver(SINGLE)
    with configured(tiles="run"):
        field = on_tiles(molecule_arrays)
        of_tiles = float(field.energy) - molecule.reference_energy
        n = int(field.iteration)
        settings.show(f"  float32 on tiles: {of_tiles:+.1e} hartree, {n} iterations")
        if settings.report is not None:
            on_tiles.save_report(settings.report, molecule_arrays)
        modelled = modelled_report(
            on_tiles.report(molecule_arrays), n_items=1, unit="iterations/s", n_runs=n
        )
    energies = np.asarray(field.energies[:n], np.float64)
    return Errors(of_host, of_tiles, energies - energies[-1]), modelled


def solver(precision: Precision) -> JitFunction:
    """The compiled loop: a function of a Problem that returns a Field."""
    return jit(partial(self_consistent, precision=precision, n_most=N_MOST))
