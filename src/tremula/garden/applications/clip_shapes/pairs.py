"""Small pictures of shapes in colours, with captions of two words."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from tremula.garden.models.datasets.shapes import is_inside

SIZE = 16
COLOURS = {"red": (1, -1, -1), "green": (-1, 1, -1), "blue": (-1, -1, 1), "yellow": (1, 1, -1)}
SHAPES = ("disc", "cross", "rows", "checks")
WORDS = (*COLOURS, *SHAPES)
CAPTIONS = np.array(
    [[WORDS.index(colour), WORDS.index(shape)] for colour, shape in product(COLOURS, SHAPES)],
    np.int32,
)


@dataclass(frozen=True)
class Pairs:
    """Pictures `float32[n, 16·16·3]`, and which of the captions each has."""

    pictures: np.ndarray
    caption: np.ndarray  # int32[n]


def pairs(n: int, seed: int) -> Pairs:
    random = np.random.default_rng(seed)
    caption = random.integers(len(CAPTIONS), size=n).astype(np.int32)
    rows = np.stack([_picture(colour, shape, random) for colour, shape in CAPTIONS[caption]])
    return Pairs(rows.reshape(n, -1).astype(np.float32), caption)


def _picture(colour: int, shape: int, random: np.random.Generator) -> np.ndarray:
    """A shape a little off the middle, on a grey ground with noise."""
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j] - random.uniform(-0.2, 0.2, (2, 1, 1))
    inside = is_inside(WORDS[shape], x, y)[..., None]
    ground = np.full(3, random.uniform(-0.5, 0.5))
    seen = np.where(inside, COLOURS[WORDS[colour]], ground)
    return seen + random.normal(0, 0.3, seen.shape)
