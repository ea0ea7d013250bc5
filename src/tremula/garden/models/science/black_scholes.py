"""Prices and Greeks that are known in closed form, in double precision: the options' references."""

from dataclasses import dataclass
from math import erf, exp, log, pi, sqrt

import numpy as np


@dataclass(frozen=True, slots=True)
class Greeks:
    """A price and how it changes with the spot and with the volatility."""

    price: float
    delta: float
    vega: float


def normal_cdf(x: float) -> float:
    return 0.5 * (1 + erf(x / sqrt(2)))


def european(
    spot: float, strike: float, rate: float, volatility: float, years: float, *, is_call: bool
) -> Greeks:
    """Black and Scholes' formula, without dividends."""
    spread = volatility * sqrt(years)
    d1 = (log(spot / strike) + (rate + volatility**2 / 2) * years) / spread
    d2, sign = d1 - spread, 1 if is_call else -1
    discounted = strike * exp(-rate * years)
    price = sign * (spot * normal_cdf(sign * d1) - discounted * normal_cdf(sign * d2))
    density = exp(-d1 * d1 / 2) / sqrt(2 * pi)
    return Greeks(price, sign * normal_cdf(sign * d1), spot * density * sqrt(years))


def geometric_asian_call(
    spot: float, strike: float, rate: float, volatility: float, years: float, n_dates: int
) -> float:
    """A call on the geometric mean of the prices at n_dates evenly spaced dates."""
    dates = years * np.arange(1, n_dates + 1) / n_dates
    mean = log(spot) + (rate - volatility**2 / 2) * float(dates.mean())
    spread = volatility * sqrt(float(np.minimum.outer(dates, dates).mean()))
    d2 = (mean - log(strike)) / spread
    grown = exp(mean + spread**2 / 2)
    return exp(-rate * years) * (grown * normal_cdf(d2 + spread) - strike * normal_cdf(d2))
