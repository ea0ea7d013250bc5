"""Generated 32×32 colour images of ten shapes and textures: a data set that needs no download.

It takes the place of CIFAR-10 in scripts, and has its sizes. It is *not* CIFAR-10, whose pictures
cannot be shipped here, and accuracies on it say nothing about CIFAR-10.
"""

import numpy as np
import torch
from torch import Tensor

SIZE = 32
NAMES = "disc ring square cross triangle rows columns diagonals checks dots".split()


class ShapeImages(torch.utils.data.Dataset):
    """Images `float32[3, 32, 32]` about zero, labels 0 … 9; the same seed gives the same set."""

    def __init__(self, n: int = 5000, seed: int = 0):
        random = np.random.default_rng(seed)
        labels = random.integers(0, len(NAMES), n)
        images = np.stack([_picture(NAMES[label], random) for label in labels])
        self.images: Tensor = torch.from_numpy(images)
        self.labels: Tensor = torch.from_numpy(labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]


def _picture(name: str, random: np.random.Generator) -> np.ndarray:
    """A shape on a background of another colour, at a random place and size, with noise."""
    place = random.uniform(-0.3, 0.3, (2, 1, 1))
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j] - place
    is_shape = is_inside(name, x / random.uniform(0.7, 1.2), y / random.uniform(0.7, 1.2))
    ground, colour = random.uniform(-1, 1, (2, 3, 1, 1))
    picture = np.where(is_shape, colour, ground) + random.normal(0, 0.2, (3, SIZE, SIZE))
    return picture.astype(np.float32)


def is_inside(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which points belong to the shape; x and y run from about -1 to 1."""
    radius = np.hypot(x, y)
    waves_x, waves_y = np.sin(12 * x), np.sin(12 * y)
    shapes = {
        "disc": radius < 0.6,
        "ring": abs(radius - 0.55) < 0.12,
        "square": np.maximum(abs(x), abs(y)) < 0.55,
        "cross": (np.minimum(abs(x), abs(y)) < 0.15) & (np.maximum(abs(x), abs(y)) < 0.7),
        "triangle": (y > -0.5) & (y < 0.6) & (abs(x) < (0.6 - y) / 2),
        "rows": waves_y > 0,
        "columns": waves_x > 0,
        "diagonals": np.sin(9 * (x + y)) > 0,
        "checks": waves_x * waves_y > 0,
        "dots": (waves_x > 0.4) & (waves_y > 0.4),
    }
    return shapes[name]
