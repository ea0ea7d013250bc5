"""Loops on tiles: a state that is computed from itself is written in place, if nothing needs it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tessellate_ipu as ti
import tremula
import tremula.jax

TILES = (0, 1, 2)
X = np.arange(12, dtype=np.float32).reshape(3, 4) / 16
N = 40  # rounds, enough that they are not written out


def scaled(x):
    def round_(_, rows):
        rows = ti.TileShardedArray(rows, TILES)
        half = ti.tile_constant_replicated(np.float32(-0.5), TILES)
        return ti.tile_map(ti.lax.scaled_add_p, rows, rows, half).array

    return lax.fori_loop(0, N, round_, ti.tile_put_sharded(x, TILES).array)


def in_place(x):
    return lax.fori_loop(0, N, lambda _, v: jnp.sin(v) + 0.25, x)


def swapped(x):
    return lax.fori_loop(0, N, lambda _, s: (s[1] * 0.5, s[0] + 0.25), (x, x + 1))


def read_later(x):
    def round_(_, state):
        old, total = state
        new = old * 0.5 + 0.25
        return new, total + jnp.sum(old * new)  # the old value is needed after the new one

    return lax.fori_loop(0, N, round_, (x, jnp.float32(0)))


def seen_as_view(x):
    def round_(_, state):
        first, rest = state
        return first * 0.5 + 1.0, first.T.reshape(3, 4) + rest * 0.5

    return lax.fori_loop(0, N, round_, (x, x))


def given_twice(x):
    def round_(_, state):
        new = state[0] * 0.5 + 0.25
        return new, new, state[0]

    return lax.fori_loop(0, N, round_, (x, x, x))


def scanned(x):
    def cell(state, row):
        new = state * 0.5 + row
        return new, state + new

    return lax.scan(cell, x[0], jnp.tile(x, (12, 1)))


def until_small(x):
    return lax.while_loop(lambda v: jnp.max(v) > 0.01, lambda v: v * 0.5, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [scaled, in_place, swapped, read_later, seen_as_view, given_twice, scanned, until_small],
)
def test_states_of_loops(function):
    """Whatever reads a state's old value reads it before the new one is written."""
    expected = jax.jit(function)(X)
    with tremula.configured(tiles="run", chip="gc2"):
        result = tremula.jax.jit(function)(X)
    for ours, theirs in zip(*map(jax.tree_util.tree_leaves, (result, expected)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_scaled_sum_is_one_step():
    """A round of a scaled sum is one compute set, without a copy of the state."""
    with tremula.configured(chip="gc2"):
        steps = tremula.jax.jit(scaled).report(X).steps
    assert [name for name, n in zip(steps.name, steps.executed, strict=True) if n == N] == [
        "scaled_add_default"
    ]
