"""Shallow water against NumPy, and what Sadourny's scheme conserves."""

import numpy as np
import pytest

from tremula.garden.applications.shallow_water.main import CORIOLIS, jets
from tremula.garden.applications.shallow_water.program import FILTER, water_engine
from tremula.garden.models.science.tile_grids import TileGrid

State = tuple[np.ndarray, np.ndarray, np.ndarray]


def at(field: np.ndarray, down: int, right: int) -> np.ndarray:
    """The neighbours of all cells, so far below and to the right."""
    return np.roll(field, (-down, -right), (0, 1))


def rates(u: np.ndarray, v: np.ndarray, p: np.ndarray, coriolis: float) -> State:
    """How fast u, v and p change."""
    across, down = (p + at(p, 0, -1)) / 2 * u, (p + at(p, -1, 0)) / 2 * v
    turn = coriolis + v - at(v, 0, -1) - u + at(u, -1, 0)
    spin = 4 * turn / (p + at(p, 0, -1) + at(p, -1, 0) + at(p, -1, -1))
    head = p + (at(u, 0, 1) ** 2 + u**2 + at(v, 1, 0) ** 2 + v**2) / 4
    downs = down + at(down, 1, 0) + at(down, 1, -1) + at(down, 0, -1)
    acrosses = across + at(across, 0, 1) + at(across, -1, 0) + at(across, -1, 1)
    return (
        (spin + at(spin, 1, 0)) / 8 * downs - head + at(head, 0, -1),
        -(spin + at(spin, 0, 1)) / 8 * acrosses - head + at(head, -1, 0),
        across - at(across, 0, 1) + down - at(down, 1, 0),
    )


def by_numpy(state: State, n_steps: int, dt: float) -> State:
    old, now = state, tuple(s + dt * r for s, r in zip(state, rates(*state, CORIOLIS), strict=True))
    for _ in range(n_steps - 1):
        new = tuple(s + 2 * dt * r for s, r in zip(old, rates(*now, CORIOLIS), strict=True))
        old = tuple(b + FILTER * (c - 2 * b + a) for a, b, c in zip(old, now, new, strict=True))
        now = new
    return now


def some_water(n: int) -> State:
    random = np.random.default_rng(8)
    u, v = random.uniform(-0.1, 0.1, (2, n, n))
    return u, v, random.uniform(0.9, 1.1, (n, n))


@pytest.mark.parametrize("blocks", [(1, 1), (3, 2)])
def test_steps_equal_numpy(blocks):
    """An Euler step and five leaps, wrapped around all edges."""
    state = some_water(10)
    engine = water_engine(TileGrid(10, 10, blocks), 6, 0.2, CORIOLIS).load()
    for name, values in zip("uvp", state, strict=True):
        engine.write_tensor(name, values.astype(np.float32))
    engine.run()
    for name, expected in zip("uvp", by_numpy(state, 6, 0.2), strict=True):
        np.testing.assert_allclose(engine.read_tensor(name), expected, atol=3e-6)


def test_water_and_energy_are_kept():
    """The scheme's rates change neither the water nor its energy."""
    u, v, p = some_water(12)
    du, dv, dp = rates(u, v, p, CORIOLIS)
    assert dp.sum() == pytest.approx(0, abs=1e-10)
    kinetic = (at(u, 0, 1) ** 2 + u**2 + at(v, 1, 0) ** 2 + v**2) / 4
    energy_rate = (dp * (p + kinetic)).sum()
    energy_rate += (du * u * (p + at(p, 0, -1)) / 2 + dv * v * (p + at(p, -1, 0)) / 2).sum()
    assert energy_rate == pytest.approx(0, abs=1e-3 * np.abs(dp * p).sum())


def test_jets_are_balanced():
    """Rotation and the slope of the water hold the jets: they hardly speed up at first."""
    u, p = (field.astype(np.float64) for field in jets(64))
    p = np.repeat(p.mean(1, keepdims=True), 64, 1)  # without the ripple
    du, dv, dp = rates(u, np.zeros_like(u), p, CORIOLIS)
    assert np.abs(du).max() < 1e-10
    assert np.abs(dp).max() < 1e-10
    assert np.abs(dv).max() < 0.15 * CORIOLIS * np.abs(u).max()
