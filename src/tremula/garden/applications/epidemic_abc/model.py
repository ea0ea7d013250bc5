"""The epidemic: its parameters with their priors, and a simulation in NumPy for reference.

Six compartments: susceptible S, infected I, confirmed A, recovered R, dead D, recovered unseen U.
Each day, with people P in all,

    S → I   (α₀ + α / (1 + (A + R + D)ⁿ)) S I / P      people keep away as confirmed cases rise
    I → A   γ I                                       tests
    A → R   β A
    A → D   δ A
    I → U   β η I

move as many people as a normal number of that mean and variance says, rounded down, at least none
and at most those who are there. A, R and D are observed.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number to infer; its prior is uniform. `truth` made the observations."""

    name: str
    low: float
    high: float
    truth: float


# Of the model of Warne et al. (BMC Public Health 20, 2020); β and δ have narrower priors here.
PARAMETERS = (
    Parameter("base infection rate α0", 0.0, 1.0, 0.25),
    Parameter("regulated infection rate α", 0.0, 100.0, 40.0),
    Parameter("strength of regulation n", 0.0, 2.0, 0.6),
    Parameter("recovery rate β", 0.0, 0.1, 0.02),
    Parameter("test rate γ", 0.0, 1.0, 0.35),
    Parameter("fatality rate δ", 0.0, 0.05, 0.012),
    Parameter("unseen recovery η", 0.0, 1.0, 0.5),
    Parameter("infected per confirmed, day 0 κ", 0.0, 2.0, 0.8),
)
LOW = np.array([p.low for p in PARAMETERS], np.float32)
HIGH = np.array([p.high for p in PARAMETERS], np.float32)
TRUTH = np.array([p.truth for p in PARAMETERS], np.float32)
N_OBSERVED = 3  # confirmed, recovered, dead


@dataclass(frozen=True, slots=True)
class Epidemic:
    """What is known: people, confirmed cases on day 0, and how many days were watched."""

    people: float = 60e6
    confirmed: float = 155.0
    n_days: int = 49


def simulated(
    parameters: np.ndarray, epidemic: Epidemic, random: np.random.Generator
) -> np.ndarray:
    """A, R and D of each day, [n, days, 3], for rows of parameters [n, 8]."""
    alpha0, alpha, n, beta, gamma, delta, eta, kappa = np.asarray(parameters, np.float64).T
    a = np.full(len(alpha), epidemic.confirmed)
    r, d, u = np.zeros_like(a), np.zeros_like(a), np.zeros_like(a)
    i = np.floor(kappa * a)
    s = epidemic.people - a - i
    days = np.empty((len(a), epidemic.n_days, N_OBSERVED))
    for day in range(epidemic.n_days):
        rate = alpha0 + alpha / (1 + (a + r + d) ** n)
        infected = _moving(rate * s * i / epidemic.people, s, random)
        tested = _moving(gamma * i, i, random)
        recovered = _moving(beta * a, a, random)
        dead = _moving(delta * a, a - recovered, random)
        unseen = _moving(beta * eta * i, i - tested, random)
        s, i, a = s - infected, i + infected - tested - unseen, a + tested - recovered - dead
        r, d, u = r + recovered, d + dead, u + unseen
        days[:, day] = np.stack([a, r, d], axis=1)
    return days


def _moving(mean: np.ndarray, there: np.ndarray, random: np.random.Generator) -> np.ndarray:
    drawn = np.floor(mean + np.sqrt(mean) * random.standard_normal(len(mean)))
    return np.clip(drawn, 0, there)


def distances(days: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """[n]: root mean square over days of each series' difference, in units of its largest value."""
    difference = (days - observed) / scales(observed)
    return np.sqrt(np.mean(difference**2, axis=(1, 2)))


def scales(observed: np.ndarray) -> np.ndarray:
    return observed.max(axis=0)


def observations(epidemic: Epidemic, seed: int = 2020) -> np.ndarray:
    """[days, 3]: one run with the true parameters."""
    return simulated(TRUTH[None], epidemic, np.random.default_rng(seed))[0]
