"""MNIST with PopTorch: its accuracy is what counting gives, its picture shows digits."""

import pytest
import torch

from tremula.garden.applications.mnist_poptorch.main import accuracy_of, some_digits
from tremula.garden.models.datasets.mnist import Mnist


class AlwaysThree(torch.nn.Module):
    def forward(self, images):
        return torch.nn.functional.one_hot(torch.full((len(images),), 3), 10).float() + images.sum()


@pytest.mark.slow
def test_accuracy_counts_right_answers():
    """Who always says three is right as often as there are threes."""
    test = Mnist(train=False, subset=True)
    assert accuracy_of(AlwaysThree(), test) == int((test.labels == 3).sum()) / len(test)


def test_the_picture_shows_twelve_digits():
    """Three rows of four, ink on paper."""
    picture = some_digits()
    assert picture.shape == (84, 112)
    assert picture.max() > 2 > 0 > picture.min()
