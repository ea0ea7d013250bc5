"""Two fluids: eddies that fade at the rate of their viscosity, and a stream past a cylinder."""

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.lattice_boltzmann.program import (
    equilibrium,
    fluid_engine,
    velocity,
)
from tremula.garden.models.science.tile_grids import TileGrid

SPEED = 0.1  # of the stream; of sound it is 0.577


def run(settings: Settings) -> Findings:
    error = eddies(settings)
    n_rows, n_cols, blocks, n_steps = (
        (64, 192, (16, 1), 2400) if settings.tiny else (512, 2048, (92, 16), 20_000)
    )
    grid = TileGrid(n_rows, n_cols, blocks)
    diameter = n_rows / 6
    viscosity = SPEED * diameter / 120  # a Reynolds number of 120: eddies leave in turn
    settings.show(f"a stream past a cylinder, {n_rows} × {n_cols} cells, {n_steps} steps")
    solid = cylinder(n_rows, n_cols, diameter)
    start = equilibrium(*stream(n_rows, n_cols))
    # The force that drives a channel of this viscosity at about this speed against its walls.
    force = 8 * viscosity * SPEED / n_rows**2
    engine = fluid_engine(grid, n_steps, viscosity, force).load()
    engine.write_tensor("populations", start)
    engine.write_tensor("solid", solid)
    engine.run()
    modelled = modelled_engine(engine, settings, n_items=solid.size * n_steps, unit="cells/s")
    populations = engine.read_tensor("populations")
    lost = abs(float(populations.sum(dtype=np.float64) / start.sum(dtype=np.float64)) - 1)
    settings.show(f"  mass changed by {lost:.1e}, {modelled.cycles / n_steps:,.0f} cycles a step")
    return Findings(
        results={
            "relative_error_of_fading": error,
            "mass_drift": lost,
            "fastest": float(np.hypot(*velocity(populations))[solid == 0].max()),
            "cycles_per_step": modelled.cycles / n_steps,
        },
        modelled=modelled,
        picture=vorticity(populations, solid),
    )


def eddies(settings: Settings) -> float:
    """Taylor–Green eddies: how far their fading is from exp(-2 ν k² t)."""
    n, n_steps, viscosity = 64, 400, 0.02
    wave = 2 * np.pi / n
    y, x = np.mgrid[0:n, 0:n] * wave
    down, right = -0.02 * np.cos(y) * np.sin(x), 0.02 * np.sin(y) * np.cos(x)
    engine = fluid_engine(TileGrid(n, n, (8, 1)), n_steps, viscosity).load()
    engine.write_tensor("populations", equilibrium(np.ones((n, n)), down, right))
    engine.write_tensor("solid", np.zeros((n, n), np.float32))
    engine.run()
    left = (velocity(engine.read_tensor("populations"))[0] * down).sum() / (down**2).sum()
    expected = np.exp(-2 * viscosity * wave**2 * n_steps)
    settings.show(f"eddies fade to {left:.4f}, the formula says {expected:.4f}")
    return float(abs(left / expected - 1))


def cylinder(n_rows: int, n_cols: int, diameter: float) -> np.ndarray:
    """Walls above and below, and a disc a little off the middle, so that eddies start early."""
    y, x = np.mgrid[0:n_rows, 0:n_cols]
    disc = (y - n_rows / 2 - 1) ** 2 + (x - n_cols / 5) ** 2 < diameter**2 / 4
    return (disc | (y == 0) | (y == n_rows - 1)).astype(np.float32)


def stream(n_rows: int, n_cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass, and velocity down and right: even, with a ripple that wakes the eddies."""
    ripple = 0.05 * np.sin(np.arange(n_cols) * (8 * np.pi / n_cols))
    shape = n_rows, n_cols
    return np.ones(shape), np.broadcast_to(SPEED * ripple, shape), np.full(shape, SPEED)


def vorticity(populations: np.ndarray, solid: np.ndarray) -> np.ndarray:
    """What turns, without the outermost percents, which stand at walls."""
    down, right = velocity(populations)
    turning = np.gradient(down, axis=1) - np.gradient(right, axis=0)
    limit = np.quantile(np.abs(turning[solid == 0]), 0.97)
    return np.where(solid > 0, 0.0, np.clip(turning, -limit, limit))
