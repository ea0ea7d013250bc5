"""Floating-point exceptions of compiled models, on the host and on tiles."""

import pytest
import torch
from torch import nn

import poptorch

EXCEPTIONS = {
    "0/0": lambda x: (x - x) / (x - x),
    "x/0": lambda x: x / (x - x),
    "inf-inf": lambda x: (x * float("inf")) - (x * float("inf")),
    "0*inf": lambda x: (x - x) * (x * float("inf")),
    "sqrt(-1)": lambda x: torch.sqrt(-x),
    "exp overflow": lambda x: torch.exp(x * 1000),
}


@pytest.mark.parametrize("how", EXCEPTIONS)
def test_floating_point_exceptions(how):
    """With the option on, the operation that goes wrong is an error; by default values pass."""
    layer = nn.Identity()
    layer.forward = EXCEPTIONS[how]
    assert not torch.isfinite(poptorch.inferenceModel(layer)(torch.ones(2))).any()
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    with pytest.raises(poptorch.Error, match="Floating point exception: aten"):
        poptorch.inferenceModel(layer, options)(torch.ones(2))


def test_comparing_with_nan():
    """A comparison with a NaN is an exception; masks of infinities are not."""
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    layer = nn.Identity()
    layer.forward = lambda x: x > 0
    with pytest.raises(poptorch.Error, match="compares with a NaN"):
        poptorch.inferenceModel(layer, options)(torch.tensor([float("nan")]))
    layer.forward = lambda x: torch.softmax(x.masked_fill(x > 1, float("-inf")), 0)
    assert poptorch.inferenceModel(layer, options)(torch.tensor([1.0, 2.0])).tolist() == [1, 0]


def test_floating_point_exceptions_of_tiles():
    """Tiles stop as well."""
    options = poptorch.Options().useIpuModel(True)
    options.Precision.enableFloatingPointExceptions(True)
    layer = nn.Identity()
    layer.forward = EXCEPTIONS["x/0"]
    with pytest.raises(poptorch.Error, match=r"(?i)floating.point"):
        poptorch.inferenceModel(layer, options)(torch.ones(2))


INFINITIES = {
    "masked softmax": lambda x: torch.softmax(x.masked_fill(x > 0.5, float("-inf")), 0),
    "where": lambda x: torch.where(x > 0.5, x, torch.full_like(x, float("inf"))),
    "scatter max": lambda x: x.new_zeros(40, 2).scatter_reduce(
        0, torch.arange(300).view(-1, 1).expand(-1, 2) % 39, x, "amax", include_self=False
    ),
    "scatter min": lambda x: x.new_zeros(40, 2).scatter_reduce(
        0, torch.arange(300).view(-1, 1).expand(-1, 2) % 39, x, "amin"
    ),
}


@pytest.mark.parametrize("how", INFINITIES)
def test_infinities_of_tiles_that_nothing_overflowed_to(how):
    """Tiles do not stop at an infinity that a mask or the start of a maximum holds."""
    options = poptorch.Options().useIpuModel(True)
    options.Precision.enableFloatingPointExceptions(True)
    layer, x = nn.Identity(), torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
    layer.forward = INFINITIES[how]
    torch.testing.assert_close(poptorch.inferenceModel(layer, options)(x), INFINITIES[how](x))
