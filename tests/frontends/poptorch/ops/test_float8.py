"""8-bit floats in PopTorch: formats, products on host and tiles, layers that train."""

import pytest
import torch
from torch import nn

import poptorch
from poptorch import float8
from tests.frontends.poptorch.models import Model, quiet
from tremula.ir.settings import configured


@pytest.fixture
def run_on(monkeypatch):
    """Runs a model on the four tiles of a small machine with this chip."""
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")

    def run(chip, model, *inputs):
        with configured(tiles="run", chip=chip):
            return poptorch.inferenceModel(model, quiet())(*inputs)

    return run


def test_casts_are_the_formats_of_the_machine():
    """Overflow is NaN or saturates, after rounding; scales are powers of two."""
    x = torch.tensor([0.3, -2.5, 247.0, 248.0, -1e9, float("inf")])
    assert float8.cast(x).codes.tolist() == [0x32, 0xCA, 0x7F, 0x80, 0x80, 0x80]
    clipped = float8.cast(x, saturates=True)
    assert clipped.codes.tolist() == [0x32, 0xCA, 0x7F, 0x7F, 0xFF, 0x7F]
    assert float8.cast(torch.tensor([100.0]), scale=3).codes.tolist() == [0x5C]
    assert float8.cast(torch.tensor([100.0]), scale=3).to(torch.float32).tolist() == [96.0]
    wide = float8.cast(torch.tensor([61439.0]), float8.F152).to(torch.float16)
    assert wide.tolist() == [57344.0]


def test_the_best_scale_is_the_least_without_overflow():
    """At it the largest number fits, one below it would not; nothing is at scale 0."""
    x = torch.tensor([0.1, -3.0, 0.01])
    scale = float8.best_scale(x)
    assert not torch.isnan(float8.cast(x, scale=scale).to(torch.float32)).any()
    assert torch.isnan(float8.cast(x * 1.3, scale=scale - 1).to(torch.float32)).any()
    assert float8.best_scale(torch.zeros(3)) == 0
    assert float8.best_scale(torch.full((2,), 1e20), float8.F152) == 31


def test_other_formats_and_operands_are_rejected():
    """PyTorch's fn formats have other biases; plain tensors must be cast; shapes must fit."""
    with pytest.raises(poptorch.Error, match=r"use torch\.float8_e4m3fnuz"):
        float8.cast(torch.ones(2), torch.float8_e4m3fn)
    with pytest.raises(poptorch.Error, match=r"must be -32 … 31, got 40"):
        float8.cast(torch.ones(2), scale=40)
    small = float8.cast(torch.ones(2, 3))
    with pytest.raises(poptorch.Error, match="matmul of 8-bit floats got Tensor"):
        float8.matmul(small, torch.ones(3, 2))
    with pytest.raises(poptorch.Error, match=r"of shapes \[2, 3\] and \[2, 3\]"):
        float8.matmul(small, small)
    with pytest.raises(poptorch.Error, match="pads with zeros"):
        float8.Conv2d(3, 4, 3, padding="same")


class _Both(nn.Module):
    def __init__(self):
        super().__init__()
        formats = float8.Float8Formats(input_scale=-2, weight_scale=-6)
        self.linear = float8.Linear(24, 10, formats=formats)
        self.conv = float8.Conv2d(3, 5, 3, padding=1, formats=formats)
        self.frozen = float8.FrozenLinear(nn.Linear(24, 10))

    def forward(self, x, image):
        small = float8.cast(x)
        return self.linear(x), self.conv(image), self.frozen(x), small.codes.clone(), small.codes


@pytest.mark.slow
def test_layers_are_the_same_on_host_and_tiles(run_on):
    """A linear layer and a convolution give the same numbers, within a rounding to half."""
    torch.manual_seed(0)
    model, x, image = _Both().eval(), torch.randn(7, 24), torch.randn(2, 3, 6, 6)
    wanted = model(x, image)
    plain = nn.functional.linear(x, model.linear.weight, model.linear.bias)
    assert (wanted[0] - plain).abs().max() < 0.2  # it is the layer, in 8 bits
    for got, right in zip(run_on("c600", model, x, image), wanted, strict=True):
        torch.testing.assert_close(got, right.detach(), rtol=2e-3, atol=2e-3)


def test_chips_without_8_bit_floats_reject_the_tile_program(run_on):
    """On a Bow the error names the layer's line, and what to do."""
    with pytest.raises(Exception, match=r"(?s)Bow does not multiply.*c600"):
        run_on("bow", float8.Linear(8, 8).eval(), torch.randn(2, 8))
    with pytest.raises(poptorch.Error, match=r"(?s)float8_e4m3fn has no.*poptorch\.float8"):
        run_on("c600", Model(lambda x: x.to(torch.float8_e4m3fn).float()), torch.ones(2))


@pytest.mark.slow
def test_layers_train():
    """All products of a training step are of 8-bit floats, and the loss falls."""
    torch.manual_seed(1)
    model = nn.Sequential(float8.Linear(16, 32), nn.Tanh(), float8.Linear(32, 4))
    x, y = torch.randn(64, 16), torch.randn(64, 4).tanh()

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, y):
            result = self.model(x)
            return result, nn.functional.mse_loss(result, y)

    with configured(host="eager", tiles="lazy"):
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.5)
        executor = poptorch.trainingModel(Loss(), quiet(), optimizer)
        losses = [float(executor(x, y)[1]) for _ in range(30)]
    assert losses[-1] < 0.6 * losses[0]
