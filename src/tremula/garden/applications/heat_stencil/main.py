"""Heats a plate: a mode that must fade at a known rate, and a picture of hot spots that spread."""

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.heat_stencil.program import heat_engine

RATE = 0.2  # conductivity × time step ÷ cell²; above 0.25 an explicit step is unstable


def run(settings: Settings) -> Findings:
    n, n_steps, blocks = (258, 400, (32, 1)) if settings.tiny else (4098, 400, (184, 8))
    n_tiles = blocks[0] * blocks[1]
    settings.show(f"a plate of {n - 2} × {n - 2} cells on {n_tiles} tiles, {n_steps} steps")
    engine = heat_engine(n, n_steps, blocks, RATE).load()
    engine.write_tensor("plate", slowest_mode(n))
    engine.run()
    reached = engine.read_tensor("result")
    expected = slowest_mode(n) * fading(n, RATE) ** n_steps
    error = float(np.abs(reached - expected).max() / expected.max())
    settings.show(f"  the slowest mode fades to {reached.max():.4f}, {error:.1e} from the formula")
    modelled = modelled_engine(engine, settings, n_items=(n - 2) ** 2 * n_steps, unit="cells/s")
    settings.show(f"  {modelled.cycles / n_steps:,.0f} cycles for a step")

    hot = hot_spots(n)
    engine.write_tensor("plate", hot)
    engine.run()
    picture = engine.read_tensor("result")
    return Findings(
        results={
            "relative_error_of_mode": error,
            "warmest": float(picture[1:-1, 1:-1].max()),
            "cycles_per_step": modelled.cycles / n_steps,
        },
        modelled=modelled,
        picture=picture[:: max(1, n // 256), :: max(1, n // 256)],
    )


def slowest_mode(n: int) -> np.ndarray:
    """The mode sin πx sin πy: zero at the border, an eigenvector of the stencil."""
    wave = np.sin(np.pi * np.arange(n) / (n - 1))
    return np.outer(wave, wave).astype(np.float32)


def fading(n: int, rate: float) -> float:
    """What a step leaves of the slowest mode: the stencil's eigenvalue, 1 - 8 r sin²(π/2(n-1))."""
    return float(1 - 8 * rate * np.sin(np.pi / (2 * (n - 1))) ** 2)


def hot_spots(n: int, n_spots: int = 24) -> np.ndarray:
    """A cold plate with discs of temperature 1, and a warm edge."""
    random = np.random.default_rng(3)
    y, x = np.mgrid[0:n, 0:n] / n
    plate = np.zeros((n, n), np.float32)
    for centre_y, centre_x, radius in random.uniform(
        (0.1, 0.1, 0.01), (0.9, 0.9, 0.06), (n_spots, 3)
    ):
        plate[(y - centre_y) ** 2 + (x - centre_x) ** 2 < radius**2] = 1.0
    plate[:, 0] = 0.5
    return plate
