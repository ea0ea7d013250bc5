"""The small set of digits: those of the demo, and the garden's; reading it needs no PyTorch."""

from pathlib import Path

import numpy as np

from tremula.demo.digits import demo_digits, read_digits

# An .npz of train_images uint8[2800, 28, 28] and train_labels: what follows the demo's digits.
_MORE = Path(__file__).parent / "data" / "more_digits.npz"


def small_mnist(train: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The first 6000 digits of MNIST to train with, or the first 1000 to test."""
    first = demo_digits(train)
    if not train:
        return first
    more = read_digits(_MORE, train=True, hint="install tremula-garden again")
    images, labels = (np.concatenate(columns) for columns in zip(first, more, strict=True))
    return images, labels
