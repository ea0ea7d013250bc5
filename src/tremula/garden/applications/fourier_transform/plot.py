"""The plot of docs/science-fft.md: cycles over the length, by where products take over."""

from tremula.garden.applications.fourier_transform.program import transform_engine
from tremula.garden.models.science.plots import PlotSeries, plot_svg

LENGTHS = (128, 256, 512)
N_SIGNALS, N_TILES = 64, 64


def svg() -> str:
    series = []
    for direct_below in (16, 32, 64, 128):
        cycles = []
        for length in LENGTHS:
            engine = transform_engine(N_SIGNALS, length, N_TILES, direct_below).load()
            engine.run()
            cycles.append(engine.report().total_cycles)
        series.append(PlotSeries(f"products of up to {direct_below} samples", LENGTHS, cycles))
    return plot_svg(
        series, x_name="samples of each of 64 signals", y_name="cycles", log_x=True, log_y=True
    )
