"""The plot of docs/science-batched-gemm.md: cycles for each product, over their number."""

import numpy as np

from tremula.garden.applications.batched_gemm.program import gemm_engine, multiplied
from tremula.garden.models.science.plots import PlotSeries, plot_svg

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
SHAPE, N_TILES = (32, 32, 32), 64


def svg() -> str:
    grouped = [_cycles(n, "grouped") / n for n in SIZES]
    few = SIZES[:4]  # more take as long each
    alone = [_cycles(n, "one by one") / n for n in few]
    return plot_svg(
        [
            PlotSeries("all at once", SIZES, grouped),
            PlotSeries("one after another", few, alone),
        ],
        x_name="products of 32 × 32 × 32 on 64 tiles",
        y_name="cycles for each",
        log_x=True,
        log_y=True,
    )


def _cycles(n: int, way: str) -> int:
    engine = gemm_engine(n, SHAPE, N_TILES, way=way).load()  # pyright: ignore[reportArgumentType]
    m, k, columns = SHAPE
    multiplied(engine, a=np.zeros((n, m, k), np.float32), b=np.zeros((n, k, columns), np.float32))
    return engine.report().total_cycles
