"""Learns to balance a pole by trial and error; worlds, policy and updates are one loop on the chip.

REINFORCE (Williams 1992): actions after which carts stood longer than carts do on average at that
time become more likely. The host starts the loop and gets only how long the poles stood.
"""

import jax
import jax.numpy as jnp
import numpy as np

from tremula.frontends.jax.function import jit
from tremula.garden.application import Findings, Settings, modelled_report
from tremula.garden.applications.cart_pole.world import moved, stands

WIDTH, RATE = 16, 0.02
FIRST_SIZE = 0.05  # of the numbers that carts start with


def run(settings: Settings) -> Findings:
    n_carts, n_times, n_updates, n_calls = (64, 100, 20, 2) if settings.tiny else (256, 500, 50, 6)
    learn = jit(lambda state, key: learnt(state, key, n_carts, n_times, n_updates))
    state, stood = first_state(), []
    for call in range(n_calls):
        state, result = learn(state, jax.random.key(call))
        stood += np.asarray(result).tolist()
        settings.show(f"  {len(stood)} updates: poles stand {stood[-1]:.0f} of {n_times} times")
    report = learn.report(state, jax.random.key(0))
    n_items = n_carts * n_times * n_updates
    return Findings(
        results={
            "share_of_time_at_first": stood[0] / n_times,
            "share_of_time": float(np.mean(stood[-5:])) / n_times,
        },
        modelled=modelled_report(report, settings, n_items=n_items, unit="pushes/s"),
        curves={"times a pole stands": stood},
    )


def learnt(state: tuple, key: jax.Array, n_carts: int, n_times: int, n_updates: int) -> tuple:
    """The state after some updates, and how long poles stood before each."""

    def update(state: tuple, keys: jax.Array) -> tuple:
        weights, first, second, count = state
        chances = jax.random.uniform(keys[0], (n_times, n_carts))
        start = jax.random.uniform(keys[1], (n_carts, 4), minval=-FIRST_SIZE, maxval=FIRST_SIZE)
        seen, pushes, stood = played(weights, start, chances)
        slope = jax.grad(surprise)(weights, seen, pushes, advantage(stood))
        tree = jax.tree_util.tree_map
        first = tree(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
        second = tree(lambda v, g: 0.99 * v + 0.01 * g**2, second, slope)
        rate = RATE * jnp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
        weights = tree(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
        return (weights, first, second, count + 1), stood.sum(0).mean()

    keys = jax.random.split(key, 2 * n_updates).reshape(n_updates, 2)
    return jax.lax.scan(update, state, keys)


def played(weights: dict, start: jax.Array, chances: jax.Array) -> tuple:
    """What carts were like, what was done (1: to the right), and whether they stood afterwards."""

    def push(now: tuple, chance: jax.Array) -> tuple:
        carts, is_up = now
        is_right = chance < jax.nn.sigmoid(leaning(weights, carts))
        after = moved(carts, is_right)
        is_up = is_up & stands(after)
        after = jnp.where(is_up[:, None], after, carts)  # a fallen one stays where it was
        return (after, is_up), (carts, is_right.astype(jnp.float32), is_up.astype(jnp.float32))

    _, result = jax.lax.scan(push, (start, stands(start)), chances)
    return result


def leaning(weights: dict, carts: jax.Array) -> jax.Array:
    """How much the policy leans to pushing right."""
    hidden = jnp.tanh(carts @ weights["first"] + weights["bias"])
    return (hidden @ weights["second"])[:, 0]


def advantage(stood: jax.Array) -> jax.Array:
    """How much longer each cart stands from each time on than carts do on average; 0 once down."""
    left = jnp.cumsum(stood[::-1], 0)[::-1]
    better = left - left.mean(1, keepdims=True)
    was_up = jnp.concatenate([jnp.ones_like(stood[:1]), stood[:-1]])
    return was_up * better / (jnp.std(better) + 1e-6)


def surprise(weights: dict, seen: jax.Array, pushes: jax.Array, weight: jax.Array) -> jax.Array:
    """Minus the logarithm of the chance of what was done, weighted."""
    towards = leaning(weights, seen.reshape(-1, 4)) * (2 * pushes.reshape(-1) - 1)
    return jnp.mean(weight.reshape(-1) * jax.nn.softplus(-towards))


def first_state() -> tuple:
    """Weights, and Adam's two means and count."""
    random = np.random.default_rng(0)
    weights = {
        "first": random.normal(0, 1, (4, WIDTH)).astype(np.float32),
        "bias": np.zeros(WIDTH, np.float32),
        "second": np.zeros((WIDTH, 1), np.float32),
    }
    zeros = {name: np.zeros_like(values) for name, values in weights.items()}
    return weights, zeros, zeros, np.float32(1)
