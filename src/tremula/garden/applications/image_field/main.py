"""Trains a network on places of a picture in one program, and draws what it learnt."""

import jax
import jax.numpy as jnp
import numpy as np

from tremula.frontends.jax.function import jit
from tremula.garden.application import Findings, Settings, modelled_report
from tremula.garden.models.datasets.mnist import load_mnist

N_BATCH, N_WAVES, WIDTH = 256, 32, 64
RATE = 5e-3


def run(settings: Settings) -> Findings:
    picture = two_digits()
    n_steps, n_calls = (200, 3) if settings.tiny else (2000, 5)
    train = jit(lambda state, picture, key: trained(state, picture, key, n_steps))
    state, losses = first_state(), []
    for call in range(n_calls):
        state, result = train(state, picture, jax.random.key(call))
        losses += np.asarray(result).tolist()
        settings.show(f"  after {n_steps * (call + 1)} steps: error {np.mean(losses[-50:]):.4f}")
    height, width = picture.shape
    places = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1)
    drawn = np.asarray(jit(field)(state[0], places.reshape(-1, 2).astype(np.float32)))
    drawn = drawn.reshape(height, width)
    psnr = float(-10 * np.log10(np.mean((drawn - picture) ** 2)))
    settings.show(f"the picture is drawn with {psnr:.1f} dB")
    report = train.report(state, picture, jax.random.key(0))
    return Findings(
        results={"psnr_db": psnr},
        modelled=modelled_report(
            report, settings, n_items=N_BATCH, unit="places/s", n_runs=n_steps
        ),
        curves={"error": losses},
        picture=np.concatenate([picture, drawn.clip(0, 1)]),
    )


def two_digits() -> np.ndarray:
    images, _ = load_mnist(train=False, subset=True)
    return np.concatenate(list(images[:2]), 1).astype(np.float32) / 255


def field(weights: dict, places: jax.Array) -> jax.Array:
    """Brightness of places (row, column): waves of random directions through two layers."""
    waves = places @ weights["directions"]
    hidden = jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], -1)
    hidden = jax.nn.relu(hidden @ weights["first"] + weights["bias"])
    return jax.nn.sigmoid((hidden @ weights["second"])[:, 0])


def first_state() -> tuple:
    """Weights, and Adam's two means and count."""
    random = np.random.default_rng(0)

    def normal(*shape: int, size: float) -> np.ndarray:
        return random.normal(0, size, shape).astype(np.float32)

    weights = {
        "directions": normal(2, N_WAVES, size=0.5),
        "first": normal(2 * N_WAVES, WIDTH, size=(2 * N_WAVES) ** -0.5),
        "bias": np.zeros(WIDTH, np.float32),
        "second": normal(WIDTH, 1, size=WIDTH**-0.5),
    }
    zeros = {name: np.zeros_like(w) for name, w in weights.items()}
    return weights, zeros, dict(zeros), np.float32(1)


def trained(state: tuple, picture: jax.Array, key: jax.Array, n_steps: int) -> tuple:
    """Adam's steps in one loop; each draws its places, and all that leaves is their errors."""
    height, width = picture.shape

    def step(state: tuple, key: jax.Array) -> tuple:
        weights, first, second, count = state
        at = jax.random.randint(key, (N_BATCH,), 0, height * width)
        places = jnp.stack([at // width, at % width], 1).astype(jnp.float32)
        truth = picture.reshape(-1)[at]

        def error(weights: dict) -> jax.Array:
            return jnp.mean((field(weights, places) - truth) ** 2)

        value, slope = jax.value_and_grad(error)(weights)
        tree = jax.tree_util.tree_map
        first = tree(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
        second = tree(lambda v, g: 0.99 * v + 0.01 * g**2, second, slope)
        rate = RATE * jnp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
        weights = tree(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
        return (weights, first, second, count + 1), value

    return jax.lax.scan(step, state, jax.random.split(key, n_steps))
