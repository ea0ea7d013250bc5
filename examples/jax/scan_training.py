"""A whole training run as one program: a scan over batches inside one compiled function."""
# Run by the wide tests.

import jax
import jax.numpy as jnp
import numpy as np

import tremula
import tremula.jax

N_STEPS, BATCH = 300, 32


def network(weights, x):
    hidden = jnp.tanh(x @ weights["in"] + weights["bias"])
    return hidden @ weights["out"]


def loss(weights, x, y):
    return jnp.mean((network(weights, x) - y) ** 2)


@tremula.jax.jit
def train(weights, key):
    """N_STEPS steps of Adam on batches that the program draws itself."""

    def step(state, key):
        weights, first, second, count = state
        x = jax.random.uniform(key, (BATCH, 1), minval=-3, maxval=3)
        value, gradients = jax.value_and_grad(loss)(weights, x, jnp.sin(x))
        tree = jax.tree_util.tree_map
        first = tree(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = tree(lambda v, g: 0.99 * v + 0.01 * g**2, second, gradients)
        scale = 0.02 * jnp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
        weights = tree(lambda w, m, v: w - scale * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
        return (weights, first, second, count + 1), value

    zeros = jax.tree_util.tree_map(jnp.zeros_like, weights)
    state = weights, zeros, zeros, jnp.float32(1)
    (weights, *_), losses = jax.lax.scan(step, state, jax.random.split(key, N_STEPS))
    return weights, losses


def main():
    random = np.random.default_rng(0)
    weights = {
        "in": random.standard_normal((1, 32)).astype(np.float32),
        "bias": np.zeros(32, np.float32),
        "out": random.standard_normal((32, 1)).astype(np.float32) / 6,
    }
    key = jax.random.key(1)
    _, losses = train(weights, key)
    print(f"loss after {N_STEPS} steps below 0.01: {float(losses[-10:].mean()) < 0.01}")
    with tremula.configured(tiles="run"):
        _, on_tiles = train(weights, key)
    print("the same losses on tiles:", bool(jnp.allclose(losses[:50], on_tiles[:50], rtol=1e-2)))
    report = train.report(weights, key)
    print(f"on a Bow: {report.total_cycles / N_STEPS:,.0f} cycles a step")


if __name__ == "__main__":
    main()
