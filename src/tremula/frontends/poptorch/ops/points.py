"""Operations on clouds of points: samples far from each other, and nearest neighbours."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from tremula.ir.capture.bodies import record_loop
from tremula.ir.recording import active

Batch = Sequence[int] | Tensor


def fps(src: Tensor, ptr: list[int], ratio: float = 0.5, random_start: bool = False) -> Tensor:
    """Places of points far from each other: a share `ratio` of the points of each cloud.

    Cloud i has points ptr[i] to ptr[i + 1]. Each next point is the one farthest from those taken;
    the first is the first of its cloud, or any with `random_start`.
    """
    if len(ptr) < 2 or any(a >= b for a, b in pairwise(ptr)):
        raise ValueError(f"ptr must hold growing places where clouds begin and end, got {ptr}.")
    if ptr[0] < 0 or ptr[-1] > src.shape[0]:
        raise ValueError(f"ptr must be within the {src.shape[0]} points, got {ptr}.")
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio must be above 0 and at most 1, got {ratio}.")
    points = src.detach().flatten(1) if src.dim() > 1 else src.detach().unsqueeze(1)
    parts = [
        _farthest(points[begin:end], math.ceil(ratio * (end - begin)), random_start) + begin
        for begin, end in pairwise(ptr)
    ]
    return torch.cat(parts)


def _farthest(points: Tensor, n_samples: int, random_start: bool) -> Tensor:
    n_points = points.shape[0]
    if random_start:
        first = torch.randint(n_points, (1,), device=points.device)
    else:
        first = torch.zeros(1, dtype=torch.int64, device=points.device)
    chosen = first.repeat(n_samples)
    if n_samples == 1:
        return chosen
    numbers = torch.arange(n_samples, device=points.device)

    def next_point(chosen: Tensor, latest: Tensor, distance: Tensor, number: Tensor) -> list:
        offset = points - points.index_select(0, latest)
        distance = torch.minimum(distance, (offset * offset).sum(1))
        latest = distance.argmax(0, keepdim=True)
        chosen = torch.where(numbers == number, latest, chosen)
        return [chosen, latest, distance, number + 1]

    far = torch.full((n_points,), math.inf, dtype=points.dtype, device=points.device)
    state = [chosen, first, far, torch.ones_like(first)]
    return _repeated(n_samples - 1, next_point, state)[0]


def _repeated(count: int, body: Callable[..., list], state: list[Tensor]) -> list[Tensor]:
    recording = active()
    if recording is not None:
        return record_loop(recording, count, body, state)
    for _ in range(count):
        state = body(*state)
    return state


def nearest(
    x: Tensor, y: Tensor, batch_x: Batch | None = None, batch_y: Batch | None = None
) -> Tensor:
    """For each row of x, the place of the nearest row of y of the same batch.

    Batches are sorted numbers, one per row, as lists or tensors; lists are checked.
    """
    x = x.unsqueeze(1) if x.dim() == 1 else x
    y = y.unsqueeze(1) if y.dim() == 1 else y
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(
            f"nearest compares rows of one length, got {list(x.shape)} and {list(y.shape)}."
        )
    _check_batches(batch_x, batch_y)
    squares = (y * y).sum(1) - 2 * (x @ y.t())  # the square of x's row is the same for all y
    if batch_x is None and batch_y is None:
        return squares.argmin(1)
    batch_of_x, batch_of_y = _batch_of(batch_x, x), _batch_of(batch_y, y)
    is_other = batch_of_x.unsqueeze(1) != batch_of_y.unsqueeze(0)
    return squares.masked_fill(is_other, math.inf).argmin(1)


def _batch_of(batch: Batch | None, points: Tensor) -> Tensor:
    if batch is None:
        batch = [0] * points.shape[0]
    result = batch if isinstance(batch, Tensor) else torch.tensor(list(batch), device=points.device)
    if tuple(result.shape) != (points.shape[0],):
        raise ValueError(
            f"a batch needs one number for each of {points.shape[0]} rows, got"
            f" {list(result.shape)}."
        )
    return result.to(points.device)


def _check_batches(batch_x: Batch | None, batch_y: Batch | None) -> None:
    """Lists are known while a model is recorded; values of tensors are not, and not checked."""
    for name, batch in (("batch_x", batch_x), ("batch_y", batch_y)):
        if isinstance(batch, list | tuple) and list(batch) != sorted(batch):
            raise ValueError(f"'{name}' is not sorted")
    if isinstance(batch_x, Tensor) or isinstance(batch_y, Tensor):
        return
    missing = set(batch_x or [0]) - set(batch_y or [0])
    if missing and (batch_x is not None or batch_y is not None):
        raise ValueError(
            "Some batch indices occur in 'batch_x' that do not occur in 'batch_y':"
            f" {sorted(missing)}"
        )
