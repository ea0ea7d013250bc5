"""Fourier transforms on tiles against PyTorch: every kind, every sort of length, gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ir.like_aten import assert_like_aten, complex_gradients
from tremula import run_on_tiles
from tremula.ir.decompositions.complex.fourier import radices

OF_REAL = "rfft rfft2 rfftn ihfft ihfft2 fft".split()
OF_COMPLEX = "fft ifft fft2 ifft2 fftn ifftn irfft irfft2 irfftn hfft hfft2 fftshift".split()


def draws(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "norm"),
    [(3, "ortho"), pytest.param(1, "backward", marks=pytest.mark.wide)],
    ids=["some", "all"],
)
def test_every_transform_and_its_gradient(step, norm):
    """All transforms of torch.fft, of real and of complex numbers, with their gradients."""

    def results(names, x):
        for name in names:
            how = {} if name == "fftshift" else {"norm": norm}

            def function(x, name=name, how=how):
                return getattr(torch.fft, name)(x, **how)

            yield from (function(x), *complex_gradients(function, x))

    def function(x, z):
        return [*results(OF_REAL[::step], x), *results(OF_COMPLEX[::step], z)]

    assert_like_aten(function, draws(3, 5), draws(2, 4, dtype=torch.complex64), atol=1e-5)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.sampled_from([1, 2, 7, 64, 90, 257, 263, 526]), st.booleans())
def test_lengths(n, is_inverse):
    """Products of small factors, primes, and lengths with a large prime factor."""
    z = draws(2, n, dtype=torch.complex64)
    transform = torch.fft.ifft if is_inverse else torch.fft.fft
    (result,) = run_on_tiles(transform, z)
    right = transform(z.to(torch.complex128))
    assert (result - right).abs().max() <= 1e-6 * right.abs().max()


def test_sizes_that_cut_and_pad():
    """A size other than the tensor's cuts it or adds zeros, before and after a real transform."""

    def function(x):
        spectrum = torch.fft.rfft(x, 12)
        cut = torch.fft.irfft(spectrum[..., :5], 9)
        return [torch.fft.rfft(x, 7), cut, torch.fft.irfft(spectrum, 20), torch.fft.fft(x, 16, 0)]

    assert_like_aten(function, draws(3, 10), atol=1e-5)


@pytest.mark.slow
def test_short_time_transforms():
    """stft and istft with windows that are inputs, as of audio models, and their gradients."""

    def forward(x, window):
        return torch.stft(x, 16, 4, window=window, return_complex=True)

    def back(spectra, window):
        return torch.istft(spectra, 16, 4, window=window, length=60)

    def function(x, window):
        spectra = forward(x, window)
        return [
            spectra, spectra.abs(), back(spectra, window),
            *complex_gradients(lambda x: forward(x, window).abs(), x),
            *complex_gradients(lambda x: back(forward(x, window) * 2j, window), x),
        ]  # fmt: skip

    assert_like_aten(function, draws(2, 64), torch.hann_window(16), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 5000))
def test_radices_are_factors(n):
    """They multiply to the length; one that is too large for a product is a prime."""
    result = radices(n)
    assert np.prod(result) == n
    for factor in result:
        is_prime = all(factor % d for d in range(2, int(factor**0.5) + 1))
        assert factor <= 64 or is_prime
