"""Generated scenes: discs and squares in noise, with their boxes; and what a grid should say."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

SIZE, STRIDE = 32, 4  # pixels of an image, of a cell
N_CELLS = SIZE // STRIDE
KINDS = ("disc", "square")
MOST = 3  # objects of a scene


@dataclass(frozen=True)
class Scenes:
    """Images with their objects; where a scene has fewer than three, a kind is -1."""

    images: Tensor  # float32[n, 1, 32, 32]
    boxes: Tensor  # float32[n, 3, 4]: left, top, right, bottom
    kinds: Tensor  # int64[n, 3]


@dataclass(frozen=True)
class Targets:
    """For each cell: whether it belongs to an object, the distances to its sides, its kind."""

    is_object: Tensor  # float32[n, 64]
    sides: Tensor  # float32[n, 64, 4], in cells
    kinds: Tensor  # int64[n, 64]; 0 where there is no object


def scenes(n: int, seed: int) -> Scenes:
    """One to three objects in each image; they may overlap a little."""
    random = np.random.default_rng(seed)
    images = random.normal(0, 0.3, (n, SIZE, SIZE)).astype(np.float32)
    boxes = np.zeros((n, MOST, 4), np.float32)
    kinds = np.full((n, MOST), -1)
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    for i in range(n):
        for j in range(random.integers(1, MOST + 1)):
            radius = random.uniform(3, 6)
            cx, cy = random.uniform(radius, SIZE - radius, 2)
            apart = abs((boxes[i, :j, :2] + boxes[i, :j, 2:]) / 2 - (cx, cy)).max(1)
            if (apart < 8).any():
                break  # too near to another one to be told apart
            kinds[i, j] = random.integers(len(KINDS))
            dx, dy = abs(x - cx), abs(y - cy)
            is_disc = KINDS[kinds[i, j]] == "disc"
            inside = np.hypot(dx, dy) < radius if is_disc else np.maximum(dx, dy) < radius
            images[i][inside] = random.uniform(1, 2)
            boxes[i, j] = cx - radius, cy - radius, cx + radius, cy + radius
    return Scenes(*(torch.from_numpy(part) for part in (images[:, None], boxes, kinds)))


def cell_centres() -> Tensor:
    """Places of the cells (x, y) in pixels, `float32[64, 2]`, row by row."""
    at = (torch.arange(N_CELLS) + 0.5) * STRIDE
    return torch.cartesian_prod(at, at).flip(1)


def targets_of(scenes: Scenes) -> Targets:
    """Cells near the middle of an object belong to it, to the last one where several do."""
    centres = cell_centres()
    n, n_cells = len(scenes.images), len(centres)
    is_object, kinds = torch.zeros(n, n_cells), torch.zeros(n, n_cells, dtype=torch.int64)
    sides = torch.zeros(n, n_cells, 4)
    for j in range(MOST):
        box, kind = scenes.boxes[:, j], scenes.kinds[:, j]
        middle = (box[:, :2] + box[:, 2:]) / 2
        near = (centres - middle[:, None]).abs().amax(2) < 0.75 * STRIDE
        near &= (kind >= 0)[:, None]
        to_sides = torch.cat([centres - box[:, None, :2], box[:, None, 2:] - centres], 2)
        is_object = torch.where(near, 1.0, is_object)
        kinds = torch.where(near, kind[:, None], kinds)
        sides = torch.where(near[..., None], to_sides / STRIDE, sides)
    return Targets(is_object, sides, kinds)
