"""B-splines over pseudo-coordinates, and features times the kernels that they weigh."""

import torch
from torch import Tensor

MAX_DEGREE = 3


def spline_basis(
    pseudo: Tensor, kernel_size: Tensor, is_open: Tensor, degree: int = 1
) -> tuple[Tensor, Tensor]:
    """Products of B-splines at coordinates in [0, 1], and the numbers of the kernels they weigh."""
    if not 1 <= degree <= MAX_DEGREE:
        raise ValueError(f"splines have a degree of 1 to {MAX_DEGREE}, got {degree}")
    n_dims, n_parts = pseudo.shape[1], degree + 1
    weights, places = [], []
    for s in range(n_parts**n_dims):
        rest, offset = s, 1
        weight = torch.ones_like(pseudo[:, 0])
        place = torch.zeros_like(pseudo[:, 0], dtype=torch.int64)
        for d in range(n_dims):
            size = kernel_size.reshape(-1)[d].to(torch.int64)
            opened = is_open.reshape(-1)[d].to(torch.int64)
            rest, k = divmod(rest, n_parts)
            v = pseudo[:, d] * (size - degree * opened).to(pseudo.dtype)
            floor = torch.floor(v)
            place = place + ((floor.to(torch.int64) + k) % size) * offset
            offset = offset * size
            weight = weight * _spline(v - floor, k, degree)
        weights.append(weight)
        places.append(place)
    return torch.stack(weights, 1), torch.stack(places, 1)


def _spline(v: Tensor, k: int, degree: int) -> Tensor:
    """The part of a B-spline that is k knots away."""
    if degree == 1:
        return 1 - v if k == 0 else v
    if degree == 2:
        return ((1 - v) ** 2 / 2, -v * v + v + 0.5, v * v / 2)[k]
    parts = (
        (1 - v) ** 3 / 6,
        (3 * v**3 - 6 * v * v + 4) / 6,
        (-3 * v**3 + 3 * v * v + 3 * v + 1) / 6,
        v**3 / 6,
    )
    return parts[k]


def spline_weighting(x: Tensor, weight: Tensor, basis: Tensor, index: Tensor) -> Tensor:
    """Features [edges, in] times the kernels [kernels, in, out] that splines weigh."""
    chosen = weight.index_select(0, index.reshape(-1).to(torch.int64))
    chosen = chosen.reshape(*index.shape, *weight.shape[1:])
    return torch.einsum("ei,es,esio->eo", x, basis, chosen)
