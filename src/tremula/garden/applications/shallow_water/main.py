"""Two waters: a standing wave of known period, and two jets that break up into vortices."""

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.shallow_water.program import water_engine
from tremula.garden.models.science.tile_grids import TileGrid

DT = 0.25  # the fastest waves of this scheme, at depth 1, allow 0.35
CORIOLIS = 0.05  # so that rotation is felt over 20 cells


def run(settings: Settings) -> Findings:
    error = standing_wave(settings)
    n, blocks, n_steps = (128, (32, 1), 2400) if settings.tiny else (1024, (92, 16), 20_000)
    settings.show(f"two jets on a rotating plane of {n} × {n} cells, {n_steps} steps")
    u, p = jets(n)
    engine = water_engine(TileGrid(n, n, blocks), n_steps, DT, CORIOLIS).load()
    for name, values in (("u", u), ("v", np.zeros_like(u)), ("p", p)):
        engine.write_tensor(name, values)
    engine.run()
    modelled = modelled_engine(engine, settings, n_items=n * n * n_steps, unit="cells/s")
    u, v, deep = (engine.read_tensor(name) for name in ("u", "v", "p"))
    drift = abs(float(deep.sum(dtype=np.float64) / p.sum(dtype=np.float64)) - 1)
    settings.show(f"  water changed by {drift:.1e}, {modelled.cycles / n_steps:,.0f} cycles a step")
    return Findings(
        results={
            "relative_error_of_wave": error,
            "water_drift": drift,
            "fastest_across": float(np.abs(v).max()),
            "cycles_per_step": modelled.cycles / n_steps,
        },
        modelled=modelled,
        picture=vorticity(u, v, deep),
    )


def standing_wave(settings: Settings) -> float:
    """A small wave without rotation; on this grid sin(ω dt) = 2 dt sin(k/2)."""
    n, n_steps, height = 64, 200, 1e-3
    wave = 2 * np.pi / n
    shape = np.cos(wave * np.arange(n))
    engine = water_engine(TileGrid(n, n, (8, 1)), n_steps, DT, 0.0).load()
    still = np.zeros((n, n), np.float32)
    engine.write_tensor("u", still)
    engine.write_tensor("v", still)
    engine.write_tensor("p", np.broadcast_to(1 + height * shape, (n, n)).astype(np.float32))
    engine.run()
    p = engine.read_tensor("p").astype(np.float64)
    reached = ((p - 1) * shape).sum() / (n * (shape**2).sum()) / height
    expected = np.cos(np.arcsin(2 * DT * np.sin(wave / 2)) * n_steps)
    settings.show(f"a standing wave stands at {reached:.4f}, the formula says {expected:.4f}")
    return float(abs(reached - expected))


def jets(n: int, speed: float = 0.3, width: float = 5.0) -> tuple[np.ndarray, np.ndarray]:
    """U and p: jets to the right and left, the slope that balances them, and a ripple."""
    y, x = np.arange(n) + 0.5, np.arange(n)
    profile = speed * (
        1 / np.cosh((y - n / 4) / width) ** 2 - 1 / np.cosh((y - 3 * n / 4) / width) ** 2
    )
    slope = -CORIOLIS * np.cumsum(profile - profile.mean())
    p = 1 + (slope - slope.mean())[:, None] + 0.002 * np.sin(6 * np.pi * x / n + np.sin(y)[:, None])
    return np.repeat(profile[:, None], n, 1).astype(np.float32), p.astype(np.float32)


def vorticity(u: np.ndarray, v: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Potential vorticity, which moves with the water."""
    return (CORIOLIS + v - np.roll(v, 1, 1) - u + np.roll(u, 1, 0)) / p
