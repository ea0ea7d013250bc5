"""Training with Inductor on a CPU gives what training with ATen gives."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from tremula import configured

N_IMAGES = 6


class Classifier(nn.Module):
    """Scores and their loss."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x, labels):
        scores = self.network(x)
        return scores, nn.functional.cross_entropy(scores, labels)


def network_of_images():
    """Pools, groups, a depth-wise convolution, batch norm, a dense layer at the end."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.BatchNorm2d(4),
        nn.Conv2d(4, 8, 3, padding=1, groups=2), nn.MaxPool2d(3, 2), nn.ReLU(),
        nn.Conv2d(8, 8, 1, groups=8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


def trained(network, images, labels, host):
    model = Classifier(copy.deepcopy(network))
    with configured(host=host, device="cpu"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        training = poptorch.trainingModel(model, optimizer=optimizer)
        losses = [training(images, labels)[1].item() for _ in range(3)]
        training.copyWeightsToHost()
    return losses, model.state_dict()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that Inductor imports
def test_inductor_trains_as_aten_does():
    """Losses and weights of three steps."""
    torch.manual_seed(0)
    start = network_of_images()
    images, labels = torch.randn(N_IMAGES, 1, 12, 10), torch.arange(N_IMAGES) % 3
    losses, weights = trained(start, images, labels, "inductor")
    expected_losses, expected = trained(start, images, labels, "eager")
    torch.testing.assert_close(losses, expected_losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that Inductor imports
def test_inductor_rounds_halves_where_aten_does():
    """Fused kernels compute several operations in float32 and round each of them to half."""
    torch.manual_seed(0)
    start = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(320, 16), nn.LayerNorm(16),
        nn.GELU(), nn.Linear(16, 3),
    ).half()  # fmt: skip
    images, labels = torch.randn(N_IMAGES, 1, 12, 10).half(), torch.arange(N_IMAGES) % 3
    losses, weights = trained(start, images, labels, "inductor")
    expected_losses, expected = trained(start, images, labels, "eager")
    torch.testing.assert_close(losses, expected_losses, rtol=2.0**-10, atol=0)
    torch.testing.assert_close(weights, expected, rtol=2.0**-9, atol=2.0**-12)
