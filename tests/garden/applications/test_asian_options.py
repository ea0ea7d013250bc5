"""Monte Carlo on tiles: closed forms, an independent simulation in NumPy, reproducible draws."""

import numpy as np
import pytest

from tremula.garden.applications.asian_options.main import TERMS, Means
from tremula.garden.applications.asian_options.program import SUMS, path_engine
from tremula.garden.models.science.black_scholes import european, geometric_asian_call

N_DATES = 12


def asian_by_numpy(n_paths: int) -> float:
    """The Asian call with its control variate, in double precision."""
    spot, strike, rate, volatility, years = TERMS
    random = np.random.default_rng(1)
    steps = random.standard_normal((n_paths, N_DATES)) * np.sqrt(years / N_DATES)
    dates = years * np.arange(1, N_DATES + 1) / N_DATES
    logs = (rate - volatility**2 / 2) * dates + volatility * steps.cumsum(1)
    prices, discount = spot * np.exp(logs), np.exp(-rate * years)
    asian = discount * np.maximum(prices.mean(1) - strike, 0)
    middle = discount * np.maximum(spot * np.exp(logs.mean(1)) - strike, 0)
    slope = np.cov(asian, middle)[0, 1] / middle.var()
    return asian.mean() + slope * (geometric_asian_call(*TERMS, N_DATES) - middle.mean())


@pytest.fixture(scope="module")
def means() -> Means:
    engine = path_engine(60_000, N_DATES, 8).load()
    engine.write_tensor("terms", np.array(TERMS, np.float32))
    engine.run()
    sums = engine.read_tensor("sums")
    return Means.of(sums, 60_000)


def test_prices_meet_closed_forms(means):
    """European and geometric calls are within four standard errors of their formulas."""
    known = european(*TERMS, is_call=True)
    middle = geometric_asian_call(*TERMS, N_DATES)
    assert abs(means["european"] - known.price) < 4 * means.error("european")
    assert abs(means["geometric"] - middle) < 4 * means.error("geometric")


def test_greeks_meet_black_and_scholes(means):
    """Pathwise delta and vega of the European call."""
    known = european(*TERMS, is_call=True)
    assert means["european_delta"] == pytest.approx(known.delta, abs=0.01)
    assert means["european_vega"] == pytest.approx(known.vega, rel=0.03)


def test_the_asian_price_meets_another_simulation(means):
    """NumPy's own paths, in double precision, give the same price; the control variate helps."""
    price, error, plain_error = means.controlled(geometric_asian_call(*TERMS, N_DATES))
    assert price == pytest.approx(asian_by_numpy(200_000), abs=5 * error)
    assert error < plain_error / 5


def test_one_date_is_a_european_option():
    """With a single date arithmetic, geometric and European payoffs are one."""
    engine = path_engine(600, 1, 1).load()
    engine.write_tensor("terms", np.array(TERMS, np.float32))
    engine.run()
    sums = dict(zip(SUMS, engine.read_tensor("sums").sum(0), strict=True))
    assert sums["asian"] == pytest.approx(sums["european"], rel=1e-5)
    assert sums["asian_vega"] == pytest.approx(sums["european_vega"], rel=1e-5)
    assert sums["geometric"] == pytest.approx(sums["european"], rel=1e-5)
    known = geometric_asian_call(*TERMS, 1)
    assert known == pytest.approx(european(*TERMS, is_call=True).price)


def test_seeds_decide_the_paths():
    """A seed draws the same paths every time, another seed draws others."""
    drawn = []
    for seed in (1, 1, 2):
        engine = path_engine(60, 4, 1, seed=seed).load()
        engine.write_tensor("terms", np.array(TERMS, np.float32))
        engine.run()
        drawn.append(engine.read_tensor("sums"))
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
