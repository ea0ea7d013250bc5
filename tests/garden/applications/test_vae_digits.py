"""The bound of the autoencoder: what it costs to tell a picture."""

import math

import pytest
import torch

from tremula.garden.applications.vae_digits.model import Autoencoder, bits_of_independent_pixels


def test_a_decoder_without_a_clue_needs_a_bit_for_each_pixel():
    """Weights of zero: every pixel is a coin, and the code carries nothing."""
    model = Autoencoder(12, 4, 2)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    with torch.no_grad():
        bits, loss = model(torch.randint(0, 2, (5, 12)).float())
    assert bits.tolist() == pytest.approx([12.0] * 5)
    assert float(loss) == pytest.approx(12.0)


def test_a_code_costs_its_distance_from_plain_noise():
    """A middle of 2 and a variance of one half, twice: (4 + 0.5 - 1 - log 0.5) / 2 nats each."""
    model = Autoencoder(3, 4, 2)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    model.encoder[2].bias.data = torch.tensor([2.0, 2.0, math.log(0.5), math.log(0.5)])
    with torch.no_grad():
        bits, _ = model(torch.ones(1, 3))
    assert float(bits) == pytest.approx(3 + (4 + 0.5 - 1 - math.log(0.5)) / math.log(2), rel=1e-5)


def test_independent_pixels_are_told_by_their_frequency():
    """A pixel that is always set costs nearly nothing, one that is set half of the time a bit."""
    known = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).repeat(500, 1)
    assert bits_of_independent_pixels(known, known) == pytest.approx(1.0, abs=0.01)
