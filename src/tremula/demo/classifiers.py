"""A small network for digits, and any classifier with its loss, as PopTorch wants it."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class WithLoss(nn.Module):
    """A classifier that returns its loss, as PopTorch expects."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.model(x)
        return scores, F.cross_entropy(scores, labels)


def mnist_cnn() -> nn.Module:
    """Two convolutions and two dense layers: the network of PopTorch's MNIST example."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10),
    )  # fmt: skip
