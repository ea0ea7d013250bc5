"""Real spherical harmonics up to degree 2, and how products of two of them couple to a third."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

MAX_DEGREE = 2


def degree_slice(degree: int) -> slice:
    """The components of a degree among all of them."""
    return slice(degree**2, (degree + 1) ** 2)


def harmonics(direction: Tensor) -> Tensor:
    """Of unit vectors [n, 3]: [n, 9], each of mean square one over the sphere."""
    x, y, z = direction.unbind(-1)
    root = 15**0.5
    parts = [
        torch.ones_like(x),
        3**0.5 * x, 3**0.5 * y, 3**0.5 * z,
        root * x * y, root * y * z, 5**0.5 / 2 * (3 * z * z - 1),
        root * z * x, root / 2 * (x * x - y * y),
    ]  # fmt: skip
    return torch.stack(parts, -1)


def coupled_degrees(max_degree: int = MAX_DEGREE) -> list[tuple[int, int, int]]:
    """Triples of degrees up to a largest one that couple and keep parity."""
    degrees = range(max_degree + 1)
    return [
        (a, b, c)
        for a in degrees
        for b in degrees
        for c in range(abs(a - b), min(a + b, max_degree) + 1)
        if (a + b + c) % 2 == 0
    ]


@cache
def coupling(a: int, b: int, c: int) -> Tensor:
    """Coefficients [2a+1, 2b+1, 2c+1] of the part of degree c in a product of degrees a and b.

    The integral of three harmonics over the sphere, by a rule that is exact for polynomials of
    their degree; scaled so that its squares add up to the components of degree c.
    """
    heights, weights = np.polynomial.legendre.leggauss(8)
    angles = 2 * np.pi * np.arange(16) / 16
    radius = np.sqrt(1 - heights**2)
    points = np.stack(
        [
            np.outer(radius, np.cos(angles)),
            np.outer(radius, np.sin(angles)),
            np.outer(heights, np.ones(16)),
        ],
        -1,
    ).reshape(-1, 3)
    values = harmonics(torch.from_numpy(points)).numpy()
    each = np.repeat(weights / 2 / 16, 16)
    parts = [values[:, degree_slice(degree)] for degree in (a, b, c)]
    table = np.einsum("p,pi,pj,pk->ijk", each, *parts)
    table[np.abs(table) < 1e-9] = 0  # what is left of zeros after rounding
    table *= np.sqrt((2 * c + 1) / (table**2).sum())
    return torch.from_numpy(table).float()
