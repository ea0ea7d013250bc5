"""The inference of an epidemic: tiles simulate what NumPy does, and keep what is near."""

import numpy as np
import pytest

from tremula.base.errors import RuntimeFailure
from tremula.garden.applications.epidemic_abc.inference import Inference
from tremula.garden.applications.epidemic_abc.main import box, results
from tremula.garden.applications.epidemic_abc.model import (
    HIGH,
    LOW,
    TRUTH,
    Epidemic,
    distances,
    observations,
    simulated,
)

EPIDEMIC = Epidemic(n_days=25)
OBSERVED = observations(EPIDEMIC)


@pytest.fixture(scope="module")
def inference():
    return Inference(EPIDEMIC, n_tiles=8, n_samples=40, n_slots=40)


def test_people_are_conserved_and_none_comes_back():
    """In the reference the dead stay dead, and recovered people stay so."""
    days = simulated(np.repeat(TRUTH[None], 20, 0), EPIDEMIC, np.random.default_rng(3))
    assert (np.diff(days[:, :, 1:], axis=1) >= 0).all()
    assert days.sum(axis=2).max() < EPIDEMIC.people


def test_tiles_simulate_what_numpy_does(inference):
    """With the parameters given, distances have the mean and spread of the reference's."""
    result = inference.run(OBSERVED, 1e3, 1900, low=TRUTH, high=TRUTH)
    assert result.n_simulated == len(result.distances) == 8 * 6 * 40
    assert result.n_days == result.n_simulated * EPIDEMIC.n_days
    random = np.random.default_rng(4)
    expected = distances(simulated(result.parameters, EPIDEMIC, random), OBSERVED)
    assert np.array_equal(result.parameters, np.broadcast_to(TRUTH, result.parameters.shape))
    error = np.hypot(expected.std(), result.distances.std()) / np.sqrt(len(expected))
    assert abs(result.distances.mean() - expected.mean()) < 4 * error
    assert result.distances.std() == pytest.approx(expected.std(), rel=0.15)


def test_accepted_samples_are_those_that_numpy_accepts(inference):
    """Parameters that pass on tiles are distributed like those that pass in the reference."""
    tolerance = 0.4
    result = inference.run(OBSERVED, tolerance, 300)
    assert result.distances.max() <= tolerance * (1 + 1e-6)
    random = np.random.default_rng(5)
    drawn = random.uniform(LOW, HIGH, (6000, len(LOW)))
    kept = drawn[distances(simulated(drawn, EPIDEMIC, random), OBSERVED) <= tolerance]
    share, expected = len(result.distances) / result.n_simulated, len(kept) / len(drawn)
    assert abs(share - expected) < 4 * np.sqrt(2 * expected / len(drawn))
    error = np.hypot(kept.std(0) / np.sqrt(len(kept)),
                     result.parameters.std(0) / np.sqrt(len(result.distances)))  # fmt: skip
    assert (np.abs(result.parameters.mean(0) - kept.mean(0)) < 4.5 * error).all()


def test_simulations_that_cannot_pass_are_left(inference):
    """Few days are simulated where the tolerance is small, all where nothing can miss."""
    result = inference.run(OBSERVED, 0.25, 1)
    assert result.n_days < 0.7 * result.n_simulated * EPIDEMIC.n_days


def test_only_chunks_with_samples_go_to_the_host(inference):
    """A small tolerance takes rounds that find nothing, and send nothing."""
    result = inference.run(OBSERVED, 0.12, 3)
    assert len(result.distances) >= 3
    assert result.n_chunks < result.n_rounds


def test_stages_narrow_down_to_the_truth(inference):
    """The box of accepted samples holds the truth, and rates that are observed become known."""
    wide = inference.run(OBSERVED, 0.4, 60)
    low, high = box(wide.parameters)
    near = inference.run(OBSERVED, 0.15, 60, low=low, high=high)
    assert (low <= TRUTH).all()
    assert (high >= TRUTH).all()
    assert near.parameters[:, 3].std() < 0.7 * wide.parameters[:, 3].std()
    assert results(near.parameters)["recovery_rate_error"] < 0.5


def test_a_tolerance_that_nothing_meets_is_named(inference):
    """After the last round the program ends, and says how little was found."""
    with pytest.raises(RuntimeFailure, match=r"only 0 of 10 samples .* after 3 rounds"):
        inference.run(OBSERVED, 1e-6, 10, max_rounds=3)


@pytest.mark.parametrize(
    ("observed", "tolerance", "message"),
    [
        (OBSERVED[:5], 0.5, r"expected \(25, 3\), got \(5, 3\)"),
        (OBSERVED * [1, 1, 0], 0.5, "zero on all days"),
        (OBSERVED, 0.0, "must be positive, got 0"),
    ],
)
def test_wrong_input_is_named(inference, observed, tolerance, message):
    """Shapes, series without a scale and tolerances that nothing can meet."""
    with pytest.raises(ValueError, match=message):
        inference.run(observed, tolerance, 1)
