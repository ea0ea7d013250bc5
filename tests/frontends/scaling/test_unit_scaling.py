"""Unit scaling: values and gradients of variance one, and gradients that point the right way."""

import math

import pytest
import torch
from torch import nn

from poptorch import float8
from tremula import scaling
from tremula.base.errors import InvalidOption
from tremula.frontends.scaling.factors import function_factors
from tremula.scaling import functional


def deviations(function, *inputs):
    """Of the result, and of the gradients of all inputs, for a normal gradient of the result."""
    inputs = [x.requires_grad_() for x in inputs]
    result = function(*inputs)
    gradients = torch.autograd.grad(result, inputs, torch.randn_like(result))
    return [float(t.detach().std()) for t in (result, *gradients)]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("name", ["gelu", "relu", "silu", "sigmoid", "tanh", "softmax"])
def test_functions_keep_the_variance(name):
    """Value and gradient are near one, and equally far from it on either side."""
    value, gradient = deviations(getattr(functional, name), torch.randn(300, 256))
    assert 0.85 < value < 1.15
    assert 0.85 < gradient < 1.15


def test_products_keep_the_variance():
    """A linear layer's result and weight gradient are one; its input's gradient shares a factor."""
    x, weight = torch.randn(400, 256), torch.randn(64, 256)
    value, of_x, of_weight = deviations(functional.linear, x, weight)
    assert value == pytest.approx(1, abs=0.02)
    assert of_weight == pytest.approx(1, abs=0.02)
    assert of_x == pytest.approx(math.sqrt(64 / 256), abs=0.02)
    last = deviations(lambda x, w: functional.linear(x, w, is_last=True), x, weight)
    assert last == pytest.approx([1, 1, 1], abs=0.02)
    assert deviations(functional.matmul, torch.randn(64, 64), torch.randn(64, 64)) == pytest.approx(
        [1] * 3, abs=0.05
    )


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_and_losses_keep_the_variance(is_causal):
    """Attention's values, and the gradients of logits and predictions, start near one."""
    query, key, value = (torch.randn(4, 64, 32) for _ in range(3))
    result = deviations(lambda v: functional.attention(query, key, v, is_causal), value)
    assert all(0.75 < d < 1.3 for d in result)
    logits = torch.randn(500, 90).requires_grad_()
    target = torch.arange(500) % 90
    (gradient,) = torch.autograd.grad(functional.cross_entropy(logits, target), logits)
    assert float(gradient.std()) == pytest.approx(1, abs=0.05)
    x = torch.randn(50, 90).requires_grad_()
    (gradient,) = torch.autograd.grad(functional.mse_loss(x, torch.randn(50, 90)), x)
    assert float(gradient.std()) == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_gradients_differ_from_pytorchs_by_one_factor_each():
    """Every parameter's gradient is a multiple of the true one, whatever paths lead to it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        scaling.Residual(nn.Sequential(scaling.LayerNorm(24), scaling.Linear(24, 24))),
        scaling.Residual(nn.Sequential(scaling.GELU(), scaling.Linear(24, 24, bias=False))),
        scaling.Linear(24, 5, is_last=True),
    ).double()
    x, target = torch.randn(40, 24).double(), torch.arange(40) % 5
    loss = functional.cross_entropy(model(x), target)
    result = torch.autograd.grad(loss, list(model.parameters()))

    def true_loss(at, step):
        with torch.no_grad():
            at += step
            value = float(functional.cross_entropy(model(x), target))
            at -= step
        return value

    for parameter, gradient in zip(model.parameters(), result, strict=True):
        direction = torch.randn_like(parameter)
        ratios = []
        for step in (gradient / gradient.norm(), direction / direction.norm()):
            difference = true_loss(parameter, 1e-5 * step) - true_loss(parameter, -1e-5 * step)
            ratios.append(difference / 2e-5 / float((gradient * step).sum()))
        assert ratios[0] == pytest.approx(ratios[1], rel=1e-3)


@pytest.mark.slow
def test_the_character_model_starts_at_one_and_learns_in_8_bits():
    """Gradients of all weights are within a factor of 16 of one; two steps of training help."""
    torch.manual_seed(0)
    model = scaling.CharacterModel(12, 16, 1, 2, 8, float8.Float8Formats())
    ids = torch.arange(32).reshape(4, 8) % 7
    logits, loss = model(ids, ids)
    loss.backward()
    assert 0.5 < float(logits.detach().std()) < 2
    for name, parameter in model.named_parameters():
        assert 1 / 16 < float(parameter.grad.std()) < 16, name
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(6):
        optimiser.zero_grad()
        now = model(ids, ids)[1]
        now.backward()
        optimiser.step()
    assert float(now.detach()) < 0.7 * float(loss.detach())


def test_unknown_functions_are_named():
    """A function without factors is an error with the nearest name."""
    with pytest.raises(InvalidOption, match=r"(?s)knows no 'gelus'.*gelu"):
        function_factors("gelus")
    with pytest.raises(ValueError, match="3 heads do not divide 32 channels"):
        scaling.CausalSelfAttention(32, 3)
