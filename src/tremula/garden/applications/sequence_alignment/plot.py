"""The plot of docs/science-alignment.md: what X-drop looks at, over how far relatives are apart."""

import numpy as np

from tremula.garden.applications.sequence_alignment.sequences import mutated, random_sequence
from tremula.garden.applications.sequence_alignment.x_drop import x_drop_engine
from tremula.garden.models.science.plots import PlotSeries, plot_svg

RATES = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
N_LETTERS, N_EACH = 300, 12


def svg() -> str:
    random = np.random.default_rng(1)
    pairs = []
    for rate in RATES:
        for _ in range(N_EACH):
            first = random_sequence(random, N_LETTERS)
            pairs.append((first, mutated(random, first, rate)))
    series = []
    for x in (5, 20, 80):
        engine = x_drop_engine(pairs, x, 16).load()
        engine.run()
        cells = engine.read_tensor("results")[:, 3].reshape(len(RATES), N_EACH)
        series.append(PlotSeries(f"x = {x}", RATES, cells.mean(1) / N_LETTERS**2))
    return plot_svg(
        series, x_name="share of letters mutated", y_name="share of cells looked at", log_y=True
    )
