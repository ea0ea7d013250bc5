"""The plot of docs/science-epidemic-abc.md: what was observed, and what accepted parameters say."""

import numpy as np

from tremula.garden.application import Settings
from tremula.garden.applications.epidemic_abc.inference import Inference
from tremula.garden.applications.epidemic_abc.main import N_TILES, TOLERANCES_TINY, infer
from tremula.garden.applications.epidemic_abc.model import Epidemic, observations, simulated
from tremula.garden.models.science.plots import PlotSeries, plot_svg


def svg() -> str:
    epidemic = Epidemic()
    observed = observations(epidemic)
    inference = Inference(epidemic, n_tiles=N_TILES, n_samples=16)
    last = infer(inference, observed, TOLERANCES_TINY, 80, Settings())[-1]
    again = simulated(last.parameters, epidemic, np.random.default_rng(1))
    days, series = np.arange(1, epidemic.n_days + 1), []
    for at, name in enumerate(("confirmed", "recovered", "dead")):
        low, high = np.quantile(again[:, :, at], [0.025, 0.975], axis=0)
        series.append(PlotSeries(f"{name}: 95 % of simulations", days, low, "band", high, at))
    for at, name in enumerate(("confirmed", "recovered", "dead")):
        series.append(PlotSeries(f"{name}: observed", days, observed[:, at], "points", None, at))
    return plot_svg(series, x_name="day", y_name="people")
