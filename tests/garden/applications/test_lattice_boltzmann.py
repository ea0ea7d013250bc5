"""The lattice Boltzmann fluid against NumPy: streaming, collision, walls, force, conservation."""

import numpy as np
import pytest

from tremula.garden.applications.lattice_boltzmann.program import (
    OPPOSITE,
    WEIGHTS,
    E,
    equilibrium,
    fluid_engine,
    velocity,
)
from tremula.garden.models.science.tile_grids import TileGrid


def step_by_numpy(populations, solid, viscosity, force) -> np.ndarray:
    omega = 1 / (3 * viscosity + 0.5)
    moved = np.stack([np.roll(p, tuple(e), (0, 1)) for p, e in zip(populations, E, strict=True)])
    mass = moved.sum(0)
    rest = equilibrium(mass, *velocity(moved)).astype(np.float64)
    push = 3 * WEIGHTS[:, None, None] * E[:, 1, None, None] * force * mass
    collided = moved + omega * (rest - moved) + push
    return np.where(solid > 0, moved[OPPOSITE], collided)


def some_fluid(n_rows: int, n_cols: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    down, right = random.uniform(-0.1, 0.1, (2, n_rows, n_cols))
    solid = (random.random((n_rows, n_cols)) < 0.15).astype(np.float32)
    return equilibrium(random.uniform(0.9, 1.1, (n_rows, n_cols)), down, right), solid


@pytest.mark.parametrize(("shape", "blocks"), [((9, 10), (3, 2)), ((8, 12), (1, 1))])
def test_steps_equal_numpy(shape, blocks):
    """Four steps with walls and a force, wrapped around all edges."""
    populations, solid = some_fluid(*shape)
    engine = fluid_engine(TileGrid(*shape, blocks), 4, 0.03, 1e-3).load()
    engine.write_tensor("populations", populations)
    engine.write_tensor("solid", solid)
    engine.run()
    expected = populations.astype(np.float64)
    for _ in range(4):
        expected = step_by_numpy(expected, solid, 0.03, 1e-3)
    np.testing.assert_allclose(engine.read_tensor("populations"), expected, atol=2e-6)


def test_mass_and_momentum_are_kept():
    """Without walls and forces, collisions change neither."""
    populations, _ = some_fluid(8, 8)
    after = step_by_numpy(populations.astype(np.float64), np.zeros((8, 8)), 0.02, 0.0)
    assert after.sum() == pytest.approx(populations.sum(dtype=np.float64))
    for axis in (0, 1):
        momentum = [np.tensordot(E[:, axis], p, 1).sum() for p in (populations, after)]
        assert momentum[0] == pytest.approx(momentum[1], abs=1e-4)


def test_velocities_and_weights_fit():
    """Opposites are opposite, and moments of the weights are those of a fluid."""
    assert np.array_equal(E[OPPOSITE], -E)
    assert WEIGHTS.sum() == pytest.approx(1)
    assert np.einsum("k,ka,kb->ab", WEIGHTS, E, E) == pytest.approx(np.eye(2) / 3)
