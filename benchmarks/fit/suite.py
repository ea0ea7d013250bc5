"""`tremula bench fit`: how well constants are recovered, and how well a fit predicts other rows."""

import time
from collections.abc import Iterable

from benchmarks import Figure, Suite
from benchmarks.fit.public_rows import held_out_ratio
from benchmarks.fit.recovery import N_SEEDS, recovered

SUITE = Suite("fit")


@SUITE.measurement("recovery")
def recovery() -> Iterable[Figure]:
    """Rows of a chip with ten constants changed by 30 %, with 2 % noise."""
    begin_s = time.perf_counter()
    outcomes = [recovered(seed) for seed in range(N_SEEDS)]
    seconds = (time.perf_counter() - begin_s) / N_SEEDS
    told = sum(one.n_told for one in outcomes)
    good = sum(one.n_good for one in outcomes)
    yield Figure.of("constants of ten that 25 rows tell, mean", told / N_SEEDS, "", ">= 7")
    yield Figure.of("of those: within 5 %", 100 * good / told, "%", ">= 95")
    median = sorted(one.worst_error for one in outcomes)[N_SEEDS // 2]
    yield Figure.of("worst error of a told constant, median run", 100 * median, "%", "<= 5")
    yield Figure.of(
        "constants moved without being told", sum(o.n_moved for o in outcomes), "", "== 0"
    )
    yield Figure.of("time of a fit", seconds, "s", "<= 60")


@SUITE.measurement("public-rows")
def public_rows() -> Iterable[Figure]:
    """Each source, or family of one source, predicted by a fit to all others."""
    begin_s = time.perf_counter()
    for chip in ("gc2", "bow"):
        ratio = held_out_ratio(chip)
        yield Figure.of(f"{chip}: held-out error / error as shipped", ratio, "x", "<= 1.15")
    yield Figure.of("time of both", time.perf_counter() - begin_s, "s", "<= 60")
