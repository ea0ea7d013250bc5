"""The plot of docs/science-tlr-mvm.md: error and time over the tolerance."""

import numpy as np

from tremula.garden.applications.tlr_mvm.compression import compressed, covariance
from tremula.garden.applications.tlr_mvm.main import dense_product_cycles
from tremula.garden.applications.tlr_mvm.program import tlr_engine
from tremula.garden.models.science.plots import PlotSeries, plot_svg

TOLERANCES = 10.0 ** -np.arange(1, 7)
N_BLOCK, N_TILES = 128, 16


def svg() -> str:
    dense = covariance(32)
    x = np.random.default_rng(5).standard_normal(len(dense)).astype(np.float32)
    expected = dense.astype(np.float64) @ x
    dense_cycles = dense_product_cycles(len(dense), N_TILES)
    errors, times, sizes = [], [], []
    for tolerance in TOLERANCES.tolist():
        matrix = compressed(dense, N_BLOCK, tolerance)
        engine = tlr_engine(matrix, N_TILES).load()
        engine.write_tensor("x", x)
        engine.run()
        result = engine.read_tensor("y")
        errors.append(np.linalg.norm(result - expected) / np.linalg.norm(expected))
        times.append(engine.report().total_cycles / dense_cycles)
        sizes.append(1 / matrix.compression)
    return plot_svg(
        [
            PlotSeries("error of the product", TOLERANCES, errors),
            PlotSeries("the tolerance itself", TOLERANCES, TOLERANCES),
            PlotSeries("cycles, of the dense product's", TOLERANCES, times),
            PlotSeries("bytes, of the dense matrix's", TOLERANCES, sizes),
        ],
        x_name="tolerance",
        y_name="error; share of dense",
        log_x=True,
        log_y=True,
    )
