"""The plot of docs/science-options.md: the standard error with and without control variate."""

import numpy as np

from tremula.garden.applications.asian_options.main import N_DATES, TERMS, Means
from tremula.garden.applications.asian_options.program import path_engine
from tremula.garden.models.science.black_scholes import geometric_asian_call
from tremula.garden.models.science.plots import PlotSeries, plot_svg


def svg() -> str:
    middle = geometric_asian_call(*TERMS, N_DATES)
    sizes, errors = [4800 * 4**k for k in range(5)], []
    for n_paths in sizes:
        engine = path_engine(n_paths, N_DATES, 8).load()
        engine.write_tensor("terms", np.array(TERMS, np.float32))
        engine.run()
        errors.append(Means.of(engine.read_tensor("sums"), n_paths).controlled(middle)[1:])
    controlled, plain = np.array(errors).T
    return plot_svg(
        [
            PlotSeries("plain", sizes, plain),
            PlotSeries("with the geometric mean as control variate", sizes, controlled),
        ],
        x_name="paths",
        y_name="standard error of the price",
        log_x=True,
        log_y=True,
    )
