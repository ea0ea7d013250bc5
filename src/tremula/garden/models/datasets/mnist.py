"""MNIST, whole or the small set, as arrays and for torch's loaders."""

import numpy as np

from tremula.demo.mnist import DigitImages, whole_mnist
from tremula.garden.models.datasets.mnist_subset import small_mnist


def load_mnist(train: bool = True, subset: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Images `uint8[n, 28, 28]` and labels `uint8[n]`: 60,000 to train, 10,000 to test.

    The first call fetches 11 MB. `subset` takes the first 6000 and 1000, which need no network.
    """
    return small_mnist(train) if subset else whole_mnist(train)


class Mnist(DigitImages):
    """The digits for torch's loaders: all of them, or the first `n_images`."""

    def __init__(self, train: bool = True, subset: bool = False, n_images: int | None = None):
        super().__init__(*(column[:n_images] for column in load_mnist(train, subset)))
