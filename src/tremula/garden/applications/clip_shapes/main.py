"""Trains two encoders on two replicas, then names new pictures by the nearest caption."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tremula.frontends.jax.function import jit, pmap
from tremula.garden.application import Findings, Settings, modelled_report
from tremula.garden.applications.clip_shapes.pairs import CAPTIONS, SIZE, WORDS, Pairs, pairs

N_REPLICAS, N_OWN = 2, 16  # pairs of a replica
WIDTH, HIDDEN = 16, 64
RATE, TEMPERATURE = 3e-3, 0.1


def run(settings: Settings) -> Findings:
    n_pairs, n_epochs = (1024, 6) if settings.tiny else (20000, 10)
    known, new = pairs(n_pairs, seed=1), pairs(256, seed=2)
    step = pmap(train_step, axis_name="replicas")
    state = copied(first_state())
    settings.show(f"{n_pairs:,} pairs, {N_REPLICAS} replicas, {len(CAPTIONS)} captions")
    losses, order = [], np.random.default_rng(0)
    for epoch in range(n_epochs):
        for rows in order.permutation(n_pairs).reshape(-1, N_REPLICAS, N_OWN):
            state, loss = step(state, *batch_of(known, rows))
            losses.append(float(loss[0]))
        settings.show(f"  epoch {epoch + 1}: loss {np.mean(losses[-16:]):.3f}")
    weights = {name: np.asarray(w)[0] for name, w in state[0].items()}
    scores = jit(closeness)(weights, new.pictures, CAPTIONS)
    accuracy = float((np.asarray(scores).argmax(1) == new.caption).mean())
    settings.show(f"new pictures named rightly by captions: {accuracy:.1%}")
    report = step.report(state, *batch_of(known, np.arange(32).reshape(N_REPLICAS, N_OWN)))
    return Findings(
        results={"accuracy_by_captions": accuracy},
        modelled=modelled_report(report, settings, n_items=N_REPLICAS * N_OWN, unit="pairs/s"),
        curves={"loss": losses},
        picture=gallery(new),
    )


def batch_of(data: Pairs, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return data.pictures[rows], CAPTIONS[data.caption[rows]]


def gallery(data: Pairs) -> np.ndarray:
    """Six pictures, uint8[16, 96, 3]."""
    row = np.concatenate(list(data.pictures[:6].reshape(6, SIZE, SIZE, 3)), 1)
    return (np.clip((row + 1) / 2, 0, 1) * 255).astype(np.uint8)


# -- the model -------------------------------------------------------------------------------------


def first_state() -> tuple:
    """Weights, and Adam's two means and count."""
    random = np.random.default_rng(0)
    sizes = {
        "pixels": (SIZE * SIZE * 3, HIDDEN),
        "picture": (HIDDEN, WIDTH),
        "words": (len(WORDS), HIDDEN),
        "caption": (HIDDEN, WIDTH),
    }
    weights = {
        name: random.normal(0, shape[0] ** -0.5, shape).astype(np.float32)
        for name, shape in sizes.items()
    }
    zeros = {name: np.zeros_like(w) for name, w in weights.items()}
    return weights, zeros, dict(zeros), np.float32(1)


def copied(state: tuple) -> tuple:
    """A state with a leading axis of replicas, equal for each of them."""
    return jax.tree_util.tree_map(lambda w: np.stack([w] * N_REPLICAS), state)


def encoded(weights: dict, pictures: jax.Array, captions: jax.Array) -> tuple:
    """Directions of pictures and of captions."""
    seen = jax.nn.relu(pictures @ weights["pixels"]) @ weights["picture"]
    said = jax.nn.relu(weights["words"][captions].sum(1)) @ weights["caption"]
    return tuple(x / jnp.sqrt((x**2).sum(-1, keepdims=True) + 1e-6) for x in (seen, said))


def closeness(weights: dict, pictures: jax.Array, captions: jax.Array) -> jax.Array:
    """[n pictures, m captions]: how close each picture is to each caption."""
    seen, said = encoded(weights, pictures, captions)
    return seen @ said.T


def train_step(state: tuple, pictures: jax.Array, captions: jax.Array) -> tuple:
    """One step of Adam on the pairs of all replicas."""
    weights, first, second, count = state
    value, slope = jax.value_and_grad(loss_of)(weights, pictures, captions)
    slope = jax.lax.pmean(slope, "replicas")
    tree = jax.tree_util.tree_map
    first = tree(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
    second = tree(lambda v, g: 0.99 * v + 0.01 * g**2, second, slope)
    rate = RATE * jnp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
    weights = tree(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
    return (weights, first, second, count + 1), jax.lax.pmean(value, "replicas")


def loss_of(weights: dict, pictures: jax.Array, captions: jax.Array) -> jax.Array:
    """This replica's pictures against all captions, and its captions against all pictures.

    Captions that say the same are all right, so the right ones share the target.
    """
    gather = partial(jax.lax.all_gather, axis_name="replicas", tiled=True)
    seen, said = encoded(weights, pictures, captions)
    is_same = (captions[:, None] == gather(captions)).all(-1)
    target = is_same / is_same.sum(1, keepdims=True)
    by_picture = jax.nn.log_softmax(seen @ gather(said).T / TEMPERATURE)
    by_caption = jax.nn.log_softmax(said @ gather(seen).T / TEMPERATURE)
    return -((by_picture + by_caption) * target).sum(1).mean() / 2
