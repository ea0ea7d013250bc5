"""The posterior: logistic regression with three coefficients, and its moments by quadrature.

An answer is 1 with probability 1 / (1 + exp(-x·c)); the prior of each coefficient c is normal.
"""

import numpy as np

N_COEFFICIENTS = 3
PRIOR_DEVIATION = 2.5
TRUTH = np.array([0.5, -1.0, 1.5])


def observations(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [n, 3], the first of which is 1, and answers [n] of 0 and 1."""
    random = np.random.default_rng(seed)
    x = np.concatenate([np.ones((n, 1)), random.standard_normal((n, N_COEFFICIENTS - 1))], axis=1)
    y = random.random(n) < 1 / (1 + np.exp(-x @ TRUTH))
    return x.astype(np.float32), y.astype(np.float32)


def log_posterior(coefficients: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[…]: of coefficients […, 3], but for a constant."""
    logits = coefficients @ x.T.astype(np.float64)
    likelihood = (y * logits - np.logaddexp(0, logits)).sum(-1)
    return likelihood - 0.5 * ((coefficients / PRIOR_DEVIATION) ** 2).sum(-1)


def exact_moments(x: np.ndarray, y: np.ndarray, n_side: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations of the three coefficients, summed over a grid of n_side³ places."""
    sides = np.linspace(-5, 6, n_side)
    grid = np.stack(np.meshgrid(sides, sides, sides, indexing="ij"), axis=-1)
    grid = grid.reshape(-1, N_COEFFICIENTS)
    logs = log_posterior(grid, x, y)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    return mean, np.sqrt(weights @ (grid - mean) ** 2)
