"""The handwritten digits that come with Tremula; reading them needs no PyTorch."""

import zipfile
from pathlib import Path

import numpy as np

from tremula.base.errors import FileLoadError

# An .npz of train_images uint8[3200, 28, 28], train_labels, test_images (1000) and test_labels.
_FILE = Path(__file__).parent / "data" / "digits.npz"


def demo_digits(train: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The first 3200 digits of MNIST to train with, or the first 1000 to test: images and labels.

    Images are `uint8[n, 28, 28]` with 16 grey levels.
    """
    return read_digits(_FILE, train=train, hint="install tremula again")


def read_digits(path: Path, *, train: bool, hint: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a file of digits; `hint` says what to do if it is damaged."""
    part = "train" if train else "test"
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            return arrays[f"{part}_images"], arrays[f"{part}_labels"]
    except (zipfile.BadZipFile, OSError, KeyError, ValueError) as error:
        raise FileLoadError(f"{path} is damaged: {error}", hint=hint) from error
