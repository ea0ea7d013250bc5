"""Fourier transforms on tiles: NumPy's, for lengths that are halved and for those that are not."""

import numpy as np
import pytest

import tremula as tr
from tremula.garden.applications.fourier_transform.main import tones
from tremula.garden.applications.fourier_transform.program import transform_engine, transformed


@pytest.mark.parametrize(("length", "direct_below"), [(16, 16), (48, 12), (12, 4)])
def test_transforms_equal_numpy(length, direct_below):
    """Direct ones, and halves down to a length that is no power of two."""
    random = np.random.default_rng(length)
    signals = random.standard_normal((5, length)) + 1j * random.standard_normal((5, length))
    engine = transform_engine(5, length, 4, direct_below).load()
    np.testing.assert_allclose(transformed(engine, signals), np.fft.fft(signals), atol=2e-4)


def test_a_tone_is_one_bin():
    """The spectrum of a turning number stands in its bin, all of it."""
    spectrum = np.fft.fft(tones(4, 32))
    assert np.abs(spectrum).argmax(1).tolist() == [0, 1, 2, 3]
    assert np.abs(spectrum).max(1) == pytest.approx(32)


def test_an_odd_length_that_must_be_halved_is_refused():
    """The message names the length and what is possible."""
    with pytest.raises(tr.errors.InvalidOption, match="33 samples cannot be halved"):
        transform_engine(2, 66, 4, 16)
