"""The plot of docs/science-sharded-embeddings.md: ranks of held-out tails by two scorers."""

import numpy as np

from tremula.garden.application import Settings
from tremula.garden.applications.sharded_embeddings.main import N_ITERATIONS, trained
from tremula.garden.models.knowledge_graphs.model import Score
from tremula.garden.models.science.plots import PlotSeries, plot_svg

N_CALLS = 60
SCORES: tuple[Score, ...] = ("RotatE", "TransE")


def svg() -> str:
    series = []
    for score in SCORES:
        before, curve, *_ = trained(score, 400, N_CALLS, Settings())
        steps = np.linspace(0, N_CALLS * N_ITERATIONS, len(curve) + 1)
        series.append(PlotSeries(score, steps, [before, *curve]))
    return plot_svg(series, x_name="steps", y_name="mean reciprocal rank of held-out tails")
