"""Heat on a plate: the tile program against NumPy and against the formula of its slowest mode."""

import numpy as np
import pytest

from tremula.garden.applications.heat_stencil.main import fading, hot_spots, slowest_mode
from tremula.garden.applications.heat_stencil.program import heat_engine


def by_numpy(plate: np.ndarray, rate: float, n_steps: int) -> np.ndarray:
    plate = plate.astype(np.float64)
    for _ in range(n_steps):
        inner = plate[1:-1, 1:-1]
        around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
        plate[1:-1, 1:-1] = inner + rate * (around - 4 * inner)
    return plate


@pytest.mark.parametrize(("n", "blocks", "n_steps"), [(10, (1, 1), 3), (23, (4, 3), 6)])
def test_steps_equal_numpy(n, blocks, n_steps):
    """Blocks of unequal sizes, an even and an odd number of steps: the same plate."""
    start = hot_spots(n)
    engine = heat_engine(n, n_steps, blocks, 0.2).load()
    engine.write_tensor("plate", start)
    engine.run()
    expected = by_numpy(start, 0.2, n_steps)
    np.testing.assert_allclose(engine.read_tensor("result"), expected, rtol=1e-5, atol=1e-6)


def test_the_formula_of_the_slowest_mode():
    """In double precision the stencil fades the mode by exactly its eigenvalue."""
    n, n_steps = 18, 50
    mode = slowest_mode(n).astype(np.float64)
    expected = mode * fading(n, 0.2) ** n_steps
    np.testing.assert_allclose(by_numpy(mode, 0.2, n_steps), expected, rtol=1e-5, atol=1e-7)


def test_halos_are_exchanged():
    """Each step exchanges; the bytes a tile receives are those of its halo, not of its block."""
    engine = heat_engine(66, 2, (2, 2), 0.2).load()
    engine.write_tensor("plate", hot_spots(66))
    engine.run()
    exchange = engine.report().steps.exchange[:, 0]
    # A block of 32 x 32 has a neighbour on two sides: 65 cells at most, and some latency.
    assert 0 < exchange[-1] < 300
