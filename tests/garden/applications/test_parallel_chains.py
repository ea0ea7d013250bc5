"""Markov chains: moments by quadrature, chains that reach them, and chains that cannot."""

import numpy as np
import pytest

from tremula.base.errors import RuntimeFailure
from tremula.garden.applications.parallel_chains.chains import Chains
from tremula.garden.applications.parallel_chains.model import (
    TRUTH,
    exact_moments,
    log_posterior,
    observations,
)


def test_quadrature_has_converged():
    """A finer grid changes nothing, and the truth lies within three deviations."""
    x, y = observations()
    mean, deviation = exact_moments(x, y)
    finer, _ = exact_moments(x, y, n_side=81)
    assert np.allclose(mean, finer, atol=1e-3)
    assert (np.abs(mean - TRUTH) < 3 * deviation).all()


def test_the_posterior_is_a_product():
    """Two halves of the observations and one prior give the posterior of all."""
    x, y = observations(20)
    at = np.array([0.3, -0.2, 0.9])
    prior = log_posterior(at, x[:0], y[:0])
    halves = log_posterior(at, x[:10], y[:10]) + log_posterior(at, x[10:], y[10:])
    assert log_posterior(at, x, y) == pytest.approx(halves - prior)


def test_chains_sample_the_posterior():
    """Means within a twentieth of a deviation, deviations within 5 %; the loop ends by itself."""
    x, y = observations()
    result = Chains(len(y), n_tiles=16).run(x, y)
    mean, deviation = exact_moments(x, y)
    assert np.abs((result.mean - mean) / deviation).max() < 0.08
    assert result.deviation == pytest.approx(deviation, rel=0.08)
    assert result.ratio <= 1.01
    assert 0.1 < result.taken < 0.9


def test_chains_that_do_not_agree_say_so():
    """Tiny steps stay where they began: the error gives the ratio."""
    x, y = observations()
    stuck = Chains(len(y), n_tiles=4, step=1e-3, max_rounds=2, n_steps=20)
    with pytest.raises(RuntimeFailure, match="do not agree after 40 steps: their ratio is"):
        stuck.run(x, y)
