"""Clicks of users on items: both have hidden tastes, and where they agree, a click is likely."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Clicks:
    """Who saw what, and whether there was a click."""

    users: np.ndarray  # int32[n]
    items: np.ndarray  # int32[n]
    is_click: np.ndarray  # float32[n]


def clicks(n: int, n_users: int, n_items: int, seed: int) -> Clicks:
    """The tastes are the same for every seed; who saw what is not."""
    tastes = np.random.default_rng(0)
    user_tastes = tastes.normal(size=(n_users, 3))
    item_tastes = tastes.normal(size=(n_items, 3))
    random = np.random.default_rng(seed)
    users, items = random.integers(n_users, size=n), random.integers(n_items, size=n)
    agreement = 2.0 * (user_tastes[users] * item_tastes[items]).sum(1)
    is_click = random.random(n) < 1 / (1 + np.exp(-agreement))
    return Clicks(users.astype(np.int32), items.astype(np.int32), is_click.astype(np.float32))


def area_under_roc(scores: np.ndarray, is_click: np.ndarray) -> float:
    """The chance that a click scores above what was left alone."""
    above = scores[is_click > 0][:, None] > scores[is_click == 0]
    return float(above.mean())
