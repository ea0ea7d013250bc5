"""Casts that round by chance: unbiased, the same for the same seed, exact numbers never moved."""

import numpy as np
import pytest

import tremula as tr
from tremula.base.floats import QuarterFormat, pack_metadata
from tremula.base.types import FLOAT, HALF, QUARTER, QUARTER_METADATA
from tremula.poplibs import popops

N = 6000
F143, F152 = QuarterFormat.F143, QuarterFormat.F152


def cast_on_tiles(values, type_, form=None, *, chip="c600", seed=1, n_runs=1, flags=None):
    """Floats cast on four tiles with stochastic rounding, as numbers; one row per run."""
    graph, sequence = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=4).create_device()), tr.Sequence()
    if flags is None:
        tr.set_stochastic_rounding(graph, sequence, True)
    else:
        tr.set_floating_point_behaviour(graph, sequence, **flags)
    x = graph.add_variable(FLOAT, [len(values)], "x", mapping="linear")
    metadata = None
    if form is not None:
        metadata = graph.add_constant(QUARTER_METADATA, [], pack_metadata(form, 0))
    out = popops.cast(graph, x, type_, sequence, metadata=metadata)
    graph.create_host_write("x", x)
    graph.create_host_read("out", out)
    engine = tr.Engine(graph, sequence, {"tremula.seed": str(seed)}).load()
    engine.write_tensor("x", np.asarray(values, np.float32))
    runs = []
    for _ in range(n_runs):
        engine.run()
        runs.append(np.asarray(engine.read_tensor("out"), np.float32))
    return np.stack(runs)


def spread(form):
    """Numbers of all sizes, denormal ones too, that lie between codes."""
    random = np.random.default_rng(3)
    least = -11 if form is F143 else -18
    powers = random.uniform(least, -least - 6, N)
    return (random.choice([-1, 1], N) * 2.0**powers).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("form", [F143, F152, None])
def test_rounding_is_unbiased_and_seeded(form):
    """The mean error in steps is that of chance; seeds decide; each number has two neighbours."""
    values = spread(form) if form else spread(F152)
    kind = QUARTER if form else HALF
    first = cast_on_tiles(values, kind, form, n_runs=2)
    step = _step(values, form)
    errors = (first.astype(np.float64) - values) / step
    assert np.abs(errors).max() < 1  # one of the two neighbours
    fraction = np.abs(values) / step % 1
    deviation = np.sqrt((fraction * (1 - fraction)).sum() * 2) / (2 * N)
    assert abs(errors.mean()) < 4 * deviation
    assert (first[0] != first[1]).mean() > 0.1  # each run draws new numbers
    np.testing.assert_array_equal(first, cast_on_tiles(values, kind, form, n_runs=2))
    assert (first[0] != cast_on_tiles(values, kind, form, seed=2)[0]).mean() > 0.1
    np.testing.assert_array_equal(cast_on_tiles(first[0], kind, form)[0], first[0])


def _step(values, form):
    """The distance of the numbers around each value, in a format or in half."""
    n_bits, least = {F143: (3, -7), F152: (2, -15), None: (10, -14)}[form]
    exponent = np.maximum(np.frexp(values)[1] - 1, least)
    return np.ldexp(1.0, exponent - n_bits)


@pytest.mark.slow
def test_chips_without_8_bit_instructions_round_to_nearest():
    """A Bow emulates the cast, which draws nothing: halves round by chance, 8-bit floats do not."""
    values = spread(F143)
    small = cast_on_tiles(values, QUARTER, F143, chip="bow", n_runs=2)
    np.testing.assert_array_equal(small[0], small[1])
    halves = cast_on_tiles(values, HALF, chip="bow", n_runs=2)
    assert (halves[0] != halves[1]).mean() > 0.1


@pytest.mark.slow
def test_overflow_is_nan_unless_it_saturates():
    """With nanoo off, what is too large becomes the largest number; infinity stays NaN."""
    values = np.array([247, 248, -1e9, np.inf, np.nan], np.float32)
    plain = {"inv": False, "div0": False, "oflo": False}
    nan = cast_on_tiles(values, QUARTER, F143, flags=plain | {"nanoo": True})
    np.testing.assert_array_equal(nan[0], [240, np.nan, np.nan, np.nan, np.nan])
    largest = cast_on_tiles(values, QUARTER, F143, flags=plain | {"nanoo": False})
    np.testing.assert_array_equal(largest[0], [240, 240, -240, np.nan, np.nan])
