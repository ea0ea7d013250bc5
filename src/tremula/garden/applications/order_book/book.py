"""A generated order book: volumes of both sides over time, and where the price goes next."""

from dataclasses import dataclass

import numpy as np

N_LEVELS, N_TIMES, N_AHEAD = 4, 16, 4
LABELS = ("falls", "stays", "rises")


@dataclass(frozen=True)
class Book:
    """Windows of volumes, their labels, and what the rule that made them would say."""

    windows: np.ndarray  # float32[n, 16, 8, 1]: bids of four levels, then asks
    labels: np.ndarray  # int32[n]
    by_rule: np.ndarray  # int32[n]


def order_book(n: int, seed: int) -> Book:
    """More bids than asks push the price up: the drift is the mean imbalance of a window."""
    random = np.random.default_rng(seed)
    pressure = np.zeros((n, N_TIMES))
    noise = random.normal(0, 0.5, (n, N_TIMES))
    pressure[:, 0] = random.normal(0, 1, n)
    for t in range(1, N_TIMES):
        pressure[:, t] = 0.9 * pressure[:, t - 1] + noise[:, t]
    depth = np.exp(-0.3 * np.arange(N_LEVELS))
    sides = [np.exp(0.5 * s * pressure[..., None]) * depth for s in (1, -1)]
    volumes = np.concatenate(sides, 2) * random.lognormal(0, 0.2, (n, N_TIMES, 2 * N_LEVELS))
    push = pressure[:, -N_AHEAD:].mean(1)
    move = push + random.normal(0, 0.3, n)
    windows = np.log(volumes)[..., None].astype(np.float32)
    return Book(windows, _as_labels(move), _as_labels(push))


def _as_labels(move: np.ndarray) -> np.ndarray:
    return (1 + (move > 0.5).astype(int) - (move < -0.5).astype(int)).astype(np.int32)
