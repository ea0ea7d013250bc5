"""Dithering of one convolution: it begins at another tile, its gradients too; results are equal."""

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from tests.frontends.poptorch.models import quiet
from tests.frontends.shared.two_convolutions import (
    IMAGE,
    multiconv_in_training,
    multiconv_of_popart,
    of_popart,
    of_popxl,
    popart_in_training,
)
from tremula.ir.origin import Choices

INFERENCE = of_popart, multiconv_of_popart
SESSION_ON = {"convolutionOptions": {"enableConvDithering": "true"}}
# What the session says, what the second convolution says, and which of both then dither.
CASES = [
    ({}, True, [False, True]),
    (SESSION_ON, None, [True, True]),
    (SESSION_ON, False, [True, False]),
    ({"convolutionOptions": {"enableConvDithering": "1"}}, None, [True, True]),
]


def tiles_of(executable):
    """The tiles of the vertices of each step that multiplies, in the order of the program."""
    steps = [s for s in executable.steps if s.name.endswith("Convolve")]
    tables = [executable.compute_sets[step.compute_set].tables for step in steps]
    return [np.concatenate([table.tile for table in of]).tolist() for of in tables]


@pytest.mark.parametrize("make", [*INFERENCE, popart_in_training, multiconv_in_training, of_popxl])
def test_a_convolution_says_for_itself_where_it_begins(make):
    """Its own word counts before the session's, and for the products of its gradients."""
    executable, expected = make({}, Choices())
    plain = tiles_of(executable)
    for session, second, dithering in CASES:
        executable, results = make(session, Choices(dithers=second))
        for one, other in zip(results, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        moved = [a != b for a, b in zip(tiles_of(executable), plain, strict=True)]
        assert moved == [dithering[i] for i in _convolutions_of(make, plain)]


def _convolutions_of(make, tiles):
    """Which convolution each product is of: both forwards, then gradients, the second's first."""
    n_gradients = len(tiles) - 2
    assert bool(n_gradients) == (make not in INFERENCE)
    own = n_gradients // 2
    return [0, 1] + [1] * (n_gradients - own) + [0] * own


class Two(nn.Module):
    """Two convolutions, of which a group has the second."""

    def __init__(self, group):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 5, 3), nn.Conv2d(5, 4, 1)
        self.group = group

    def forward(self, x):
        y = self.first(x).tanh()
        with self.group:
            y = self.second(y)
        return poptorch.identity_loss(y.sum(), "none")


def test_a_group_of_poptorch_says_where_its_convolutions_begin():
    """MultiConv.enableConvDithering counts forwards and backwards."""
    result = []
    for dithers in (False, True):
        torch.manual_seed(0)
        model = Two(poptorch.MultiConv().enableConvDithering(dithers))
        training = poptorch.trainingModel(model, quiet(), torch.optim.SGD(model.parameters(), 0.1))
        loss = training(torch.tensor(IMAGE))
        result.append((tiles_of(training.tile_program().executable), loss))
    (plain, loss), (tiles, same) = result
    torch.testing.assert_close(loss, same, rtol=0, atol=0)
    moved = [a != b for a, b in zip(tiles, plain, strict=True)]
    assert moved[:2] == [False, True]
    assert moved[2:].count(True) == 2, "the gradients of input and of weights"
