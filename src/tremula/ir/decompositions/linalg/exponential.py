"""The exponential of a matrix: a polynomial of the matrix halved often enough, then squared."""

from math import factorial

import torch
from torch import Tensor

from tremula.ir.op_table import decomposes

aten = torch.ops.aten

_MOST_SQUARINGS = 16  # a matrix of a larger norm than 2 to this power gives NaN
_DEGREE = 12  # of the polynomial: below norm 1 what is left out is less than rounding


@decomposes(aten.linalg_matrix_exp.default)
def matrix_exp(matrix: Tensor) -> Tensor:
    """Taylor's polynomial of degree 12 of the matrix over a power of 2, squared as many times.

    How many is up to each matrix of a batch: every squaring is computed, and taken or not.
    """
    if not matrix.numel():
        return matrix.clone()
    norm = matrix.abs().sum(-2).amax(-1)[..., None, None]
    n_squarings = sum((norm > 2.0**i).to(matrix.dtype) for i in range(_MOST_SQUARINGS))
    assert isinstance(n_squarings, Tensor), "there are squarings"
    found = _polynomial(matrix * torch.exp2(-n_squarings))
    for i in range(_MOST_SQUARINGS):
        found = torch.where(n_squarings > i, found @ found, found)
    return torch.where(norm > 2.0**_MOST_SQUARINGS, torch.full_like(found, torch.nan), found)


def _polynomial(x: Tensor) -> Tensor:
    """Four terms at a time, of powers up to x³, then times x⁴: five products."""
    one = torch.eye(x.shape[-1], dtype=x.dtype)
    square = x @ x
    cube, fourth = x @ square, square @ square

    def terms(first: int) -> Tensor:
        weights = [1 / factorial(first + i) for i in range(4)]
        return weights[0] * one + weights[1] * x + weights[2] * square + weights[3] * cube

    found = terms(8) + fourth / factorial(_DEGREE)
    return terms(0) + fourth @ (terms(4) + fourth @ found)
