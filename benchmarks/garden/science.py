"""The sciences' figures: loops against Numba, low-rank products against NumPy, energies."""

from collections.abc import Iterator

import numpy as np

from benchmarks.figures import Figure, Measurement
from benchmarks.measure import ratio

N_PIXELS = 1024  # side of the grids of water and fluid


def heat() -> Iterator[Figure]:
    """The heat equation on 4096² cells."""
    from benchmarks.core.programs import heat_by_hand
    from tremula.garden.applications.heat_stencil.program import heat_engine

    n, n_steps = 4096, 20
    start = np.random.default_rng(0).random((n, n), np.float32)
    engine = heat_engine(n, n_steps, (184, 8), 0.1).load()
    engine.write_tensor("plate", start)
    engine.run()
    a, b = start.copy(), start.copy()
    heat_by_hand(a, b, n_steps)
    np.testing.assert_allclose(engine.read_tensor("result"), a, rtol=1e-5, atol=1e-5)
    measured = ratio(engine.run, lambda: heat_by_hand(a, b, n_steps), rounds=5)
    yield Figure.of("garden-heat", measured.value, "× Numba", "<= 1.5")


def water() -> Iterator[Figure]:
    """Shallow water on 1024² cells."""
    from benchmarks.garden.by_hand import water_by_hand
    from tremula.garden.applications.shallow_water.main import CORIOLIS, DT, jets
    from tremula.garden.applications.shallow_water.program import FILTER, water_engine
    from tremula.garden.models.science.tile_grids import TileGrid

    n, n_steps = N_PIXELS, 20
    u, p = jets(n)
    state = {"u": u, "v": np.zeros_like(u), "p": p}
    engine = water_engine(TileGrid(n, n, (64, 4)), n_steps, DT, CORIOLIS).load()
    for name, values in state.items():
        engine.write_tensor(name, values)
    engine.run()
    padded = [np.pad(values, 1, mode="wrap") for values in state.values()]
    old, fluxes = (tuple(np.zeros_like(padded[0]) for _ in range(k)) for k in (3, 4))
    constants = np.float32(DT), np.float32(CORIOLIS), np.float32(FILTER)
    first, second, third = padded
    by_hand = lambda: water_by_hand(first, second, third, old, fluxes, n_steps, *constants)  # noqa: E731
    by_hand()
    for name, values in zip(state, padded, strict=True):
        np.testing.assert_allclose(engine.read_tensor(name), values[1:-1, 1:-1], atol=1e-5)
    measured = ratio(engine.run, by_hand, rounds=5)
    yield Figure.of("garden-shallow-water", measured.value, "× Numba", "<= 1.5")


def fluid() -> Iterator[Figure]:
    """A lattice Boltzmann fluid on 1024² cells."""
    from benchmarks.garden.by_hand import fluid_by_hand
    from tremula.garden.applications.lattice_boltzmann.main import cylinder, stream
    from tremula.garden.applications.lattice_boltzmann.program import equilibrium, fluid_engine
    from tremula.garden.models.science.tile_grids import TileGrid

    n, n_steps, viscosity, force = N_PIXELS, 10, 0.02, 1e-6
    solid = cylinder(n, n, n / 6)
    start = equilibrium(*stream(n, n))
    engine = fluid_engine(TileGrid(n, n, (64, 4)), n_steps, viscosity, force).load()
    engine.write_tensor("populations", start)
    engine.write_tensor("solid", solid)
    engine.run()
    a = np.pad(start, ((0, 0), (1, 1), (1, 1)))
    b = np.zeros_like(a)
    constants = np.float32(1 / (3 * viscosity + 0.5)), np.float32(force)
    by_hand = lambda: fluid_by_hand(a, b, solid, n_steps // 2, *constants)  # noqa: E731
    by_hand()
    expected = a[:, 1:-1, 1:-1]
    np.testing.assert_allclose(engine.read_tensor("populations"), expected, atol=1e-5)
    measured = ratio(engine.run, by_hand, rounds=5)
    yield Figure.of("garden-lattice-boltzmann", measured.value, "× Numba", "<= 1.5")


def trees() -> Iterator[Figure]:
    """Binomial trees of 2,000 options."""
    from benchmarks.garden.by_hand import trees_by_hand
    from tremula.garden.applications.binomial_options.main import book
    from tremula.garden.applications.binomial_options.program import option_engine

    options = book(2000, 256)
    engine = option_engine(options, 256).load()
    engine.write_tensor("terms", options.terms)
    engine.run()
    prices = np.zeros(len(options.terms), np.float32)
    columns = options.terms, options.sign, options.is_american, options.n_steps, prices
    trees_by_hand(*columns)
    np.testing.assert_allclose(engine.read_tensor("prices"), prices, rtol=1e-3, atol=1e-3)
    measured = ratio(engine.run, lambda: trees_by_hand(*columns), rounds=5)
    yield Figure.of("garden-binomial-options", measured.value, "× Numba", "<= 1.5")


def paths() -> Iterator[Figure]:
    """Monte Carlo of an Asian option, 300,000 paths of 12 dates."""
    from benchmarks.garden.by_hand import paths_by_hand
    from tremula.codelets.python.random import seeds_of
    from tremula.garden.applications.asian_options.main import N_DATES, TERMS
    from tremula.garden.applications.asian_options.program import SUMS, path_engine

    n_tiles, n_paths = 64, 300_000
    terms = np.array(TERMS, np.float32)
    engine = path_engine(n_paths, N_DATES, n_tiles).load()
    engine.write_tensor("terms", terms)
    engine.run()
    result = engine.read_tensor("sums").astype(np.float64)
    each = -(-n_paths // len(result))
    states, sums = seeds_of(7, len(result)), np.zeros((len(result), len(SUMS)), np.float32)
    by_hand = lambda: paths_by_hand(terms, states, sums, each, N_DATES)  # noqa: E731
    by_hand()
    np.testing.assert_allclose(result.mean(0), sums.astype(np.float64).mean(0), rtol=0.05)
    measured = ratio(engine.run, by_hand, rounds=5)
    yield Figure.of("garden-asian-options", measured.value, "× Numba", "<= 1.5")


def low_rank() -> Iterator[Figure]:
    """A tile low-rank product of a 4096² covariance matrix that nearly fills its tiles."""
    from tremula.garden.applications.tlr_mvm.compression import compressed, covariance
    from tremula.garden.applications.tlr_mvm.main import bandwidth_share
    from tremula.garden.applications.tlr_mvm.program import tlr_engine

    matrix = compressed(covariance(64), 256, 1e-4)
    order, n_tiles = matrix.row_order(), 24
    x = np.random.default_rng(0).standard_normal(matrix.n).astype(np.float32)
    engine = tlr_engine(matrix, n_tiles).load()
    engine.write_tensor("x", x)
    engine.run()
    expected = matrix.multiply(x, order)
    assert np.abs(engine.read_tensor("y") - expected).max() <= 1e-4 * np.abs(expected).max()
    share = bandwidth_share(matrix, engine)
    measured = ratio(engine.run, lambda: matrix.multiply(x, order), rounds=5)
    yield Figure.of("garden-tlr-mvm", measured.value, "× NumPy", "<= 2")
    yield Figure.of("garden-tlr-mvm-bandwidth", share, "of SRAM's", ">= 0.6")


def molecules() -> Iterator[Figure]:
    """Energies of water, methane and benzene by B3LYP, against PySCF's."""
    from tremula.garden.application import Settings
    from tremula.garden.applications.kohn_sham.main import run

    results = run(Settings(tiny=False, show=lambda _line: None)).results
    for bits, bar in ((64, "<= 1e-5"), (32, "<= 1e-3")):
        error = results[f"largest_error_hartree_float{bits}"]
        yield Figure.of(f"garden-dft-float{bits}", error, "hartree", bar)


MEASUREMENTS: dict[str, Measurement] = {
    "heat": heat,
    "shallow-water": water,
    "lattice-boltzmann": fluid,
    "binomial-options": trees,
    "asian-options": paths,
    "tlr-mvm": low_rank,
    "molecules": molecules,
}
