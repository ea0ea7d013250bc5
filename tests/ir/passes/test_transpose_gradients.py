"""Gradients of weights come out of their products in the memory order of the weights."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from tests.ir.steps import captured, train_on_tiles, training_step
from tremula.ir.passes import TILE_PASSES, apply
from tremula.ir.passes.transpose_gradients import transpose_gradients

GRADIENT, MM, T = (
    op.default for op in (torch.ops.tremula.gradient, torch.ops.aten.mm, torch.ops.aten.t)
)


class Plain(nn.Module):
    """Two dense layers, whose weights are read transposed."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 20), nn.Linear(20, 4, bias=False)

    def forward(self, x):
        return mse_loss(self.second(torch.tanh(self.first(x))), x[:, :4])


class AsItLies(nn.Module):
    """A product with a weight that is not transposed."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 4))

    def forward(self, x):
        return mse_loss(x @ self.weight, x[:, :4])


class Tied(nn.Module):
    """A weight that two layers share: its gradient is a sum."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 20, bias=False)

    def forward(self, x):
        return mse_loss(self.layer(x) @ self.layer.weight, x)


def products_of_gradients(step):
    """For each gradient that is a product, as it is or transposed: whether it is transposed."""
    result = []
    for mark in step.graph.nodes:
        if mark.target is GRADIENT:
            node, is_turned = mark.args[0], False
            while node.target is T:
                node, is_turned = node.args[0], not is_turned
            result += [is_turned] if node.target is MM else []
    return result


@pytest.mark.parametrize(
    ("model", "expected"), [(Plain, [True, True]), (AsItLies, [False]), (Tied, [])]
)
def test_only_gradients_of_transposed_weights_turn(model, expected):
    """A weight in the order of its gradient, and a sum of two gradients, are left alone."""
    torch.manual_seed(0)
    step = apply(training_step(model(), torch.randn(5, 12)), TILE_PASSES)
    assert products_of_gradients(step) == expected


def test_a_step_without_training_stays():
    """Inference has no gradients to turn."""
    step = captured(Plain(), torch.randn(5, 12))
    assert transpose_gradients(step) is step


@pytest.mark.parametrize("model", [Plain, AsItLies, Tied])
def test_weights_are_the_same(model):
    """Tiles train as PyTorch does."""
    torch.manual_seed(0)
    ours, theirs = model(), model()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 12)
    result = train_on_tiles(ours, x).weights
    theirs(x).backward()
    for weight, parameter in zip(result, theirs.parameters(), strict=True):
        wanted = parameter.detach() - 0.1 * parameter.grad
        torch.testing.assert_close(weight, wanted, rtol=1e-4, atol=1e-5)
