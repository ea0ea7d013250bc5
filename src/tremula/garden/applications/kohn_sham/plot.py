"""The plot of docs/science-kohn-sham.md: how the energy settles, in both precisions."""

import jax
import numpy as np

from tremula.garden.applications.kohn_sham.main import solver
from tremula.garden.applications.kohn_sham.molecules import integrals
from tremula.garden.applications.kohn_sham.scf import DOUBLE, SINGLE, problem
from tremula.garden.models.science.plots import PlotSeries, plot_svg
from tremula.ir.settings import configured


def svg() -> str:
    molecule = integrals("H2O", "sto-3g")
    with jax.enable_x64(True):
        double = solver(DOUBLE)(problem(molecule, DOUBLE))
    with configured(tiles="run"):
        single = solver(SINGLE)(problem(molecule, SINGLE))
    series = []
    for name, field in (("float64 on this computer", double), ("float32 on tiles", single)):
        n = int(field.iteration)
        error = np.abs(np.asarray(field.energies[:n], np.float64) - molecule.reference_energy)
        series.append(PlotSeries(name, np.arange(1, n + 1), error))
    return plot_svg(
        series, x_name="iteration", y_name="distance from PySCF's energy, hartree", log_y=True
    )
