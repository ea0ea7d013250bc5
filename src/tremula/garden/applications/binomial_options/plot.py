"""The plot of docs/science-options.md: trees against Black and Scholes as they grow."""

import numpy as np

from tremula.garden.applications.binomial_options.program import OptionColumns, option_engine
from tremula.garden.models.science.black_scholes import european
from tremula.garden.models.science.plots import PlotSeries, plot_svg

SIZES = np.unique(np.geomspace(8, 1024, 22).astype(int)) // 2 * 2  # even, so that errors line up


def svg() -> str:
    series = []
    for strike in (100.0, 110.0):
        terms = np.tile(np.array([100, strike, 0.05, 0.2, 1], np.float32), (len(SIZES), 1))
        ones = np.ones(len(SIZES), np.int32)
        calls = OptionColumns(terms, ones, 0 * ones, SIZES)
        engine = option_engine(calls, 8).load()
        engine.write_tensor("terms", terms)
        engine.run()
        known = european(100, strike, 0.05, 0.2, 1, is_call=True).price
        error = np.abs(engine.read_tensor("prices") - known) / known
        series.append(PlotSeries(f"call, strike {strike:g}", SIZES, error, "points"))
    series.append(PlotSeries("0.2 / steps", SIZES, 0.2 / SIZES))
    return plot_svg(
        series, x_name="steps of the tree", y_name="relative error", log_x=True, log_y=True
    )
