"""The plot of docs/science-bundle-adjustment.md: cost over rounds of messages."""

import numpy as np

from tremula.garden.application import Settings
from tremula.garden.applications.bundle_adjustment.main import N_ROUNDS, run
from tremula.garden.models.science.plots import PlotSeries, plot_svg


def svg() -> str:
    above = run(Settings()).curves["cost above the direct solution"]
    rounds = N_ROUNDS * np.arange(1, len(above) + 1)
    return plot_svg(
        [PlotSeries("12 cameras, 150 points", rounds, above)],
        x_name="rounds of messages",
        y_name="cost above the direct solution, relative",
        log_y=True,
    )
