"""Programs of the JAX figures: a training step, a loop over rows, many equations, vertices."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tessellate_ipu as ti
import tremula

N_TILES, N_ROUNDS, ROW = 1472, 1000, 16


def mlp_step(weights: list, images: jax.Array, labels: jax.Array) -> list:
    """A step of a network of three layers for MNIST."""

    def loss(weights: list) -> jax.Array:
        *hidden, (last, bias) = weights
        x = images
        for w, b in hidden:
            x = jnp.tanh(x @ w + b)
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(x @ last + bias) * labels, axis=1))

    gradients = jax.grad(loss)(weights)
    return jax.tree_util.tree_map(lambda w, g: w - 0.1 * g, weights, gradients)


def mlp_operands(batch: int = 128) -> tuple:
    random, sizes = np.random.default_rng(0), (784, 512, 512, 10)
    weights = [
        (random.standard_normal((a, b)).astype(np.float32) * a**-0.5, np.zeros(b, np.float32))
        for a, b in pairwise(sizes)
    ]
    images = random.random((batch, 784)).astype(np.float32)
    return weights, images, np.eye(10, dtype=np.float32)[random.integers(0, 10, batch)]


def recurrent(weights: jax.Array, rows: jax.Array) -> tuple:
    """200 rounds of a recurrent cell."""

    def cell(state: jax.Array, row: jax.Array) -> tuple:
        state = jnp.tanh(state @ weights + row)
        return state, state.mean()

    return lax.scan(cell, jnp.zeros(rows.shape[1:]), rows)


def recurrent_operands(n_rows: int = 200) -> tuple:
    random = np.random.default_rng(0)
    weights = random.random((128, 128)).astype(np.float32) / 20
    return weights, random.random((n_rows, 32, 128)).astype(np.float32)


def many_equations(x: jax.Array) -> jax.Array:
    """A chain of 5,000 equations."""
    for i in range(1250):
        x = jnp.sin(x) * 1.01 + x / (1.0 + i)
    return x


def mapped_loop(x: jax.Array) -> jax.Array:
    """A vertex on each of 1,472 tiles, 1,000 times."""
    tiles = tuple(range(N_TILES))

    def round_(_: int, rows: jax.Array) -> jax.Array:
        sharded = ti.TileShardedArray(rows, tiles)
        return ti.tile_map(ti.lax.scaled_add_p, sharded, sharded, _half(tiles)).array

    return lax.fori_loop(0, N_ROUNDS, round_, ti.tile_put_sharded(x, tiles).array)


def _half(tiles: tuple[int, ...]) -> ti.TileShardedArray:
    return ti.tile_constant_replicated(np.float32(-0.5), tiles)


def poplar_loop(x: np.ndarray) -> tremula.Engine:
    """The loop written with Poplar's API; an engine that is loaded."""
    from tremula.poplibs import popops

    device = tremula.IPUModel("bow").create_device()
    graph = tremula.Graph(device)
    rows = graph.add_variable("float", x.shape, "rows")
    for tile in range(N_TILES):
        graph.set_tile_mapping(rows[tile], tile)
    graph.create_host_write("rows", rows)
    graph.create_host_read("rows", rows)
    body = tremula.Sequence()
    half = graph.add_constant("float", [N_TILES, 1], np.full((N_TILES, 1), -0.5, np.float32))
    for tile in range(N_TILES):
        graph.set_tile_mapping(half[tile], tile)
    expr = popops.expr
    popops.map_in_place(
        graph, expr._1 + expr._2 * expr._1, [rows, half.broadcast(x.shape[1], 1)], body
    )
    engine = tremula.Engine(graph, tremula.Repeat(N_ROUNDS, body))
    engine.load(device)
    engine.write_tensor("rows", x)
    return engine
