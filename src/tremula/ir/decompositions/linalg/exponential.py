"""The exponential of a matrix: a polynomial of the matrix halved often enough, then squared."""

from math import factorial

import torch
from torch import Tensor

from tremula.ir.op_table import decomposes

aten = torch.ops.aten

_DEGREE = 18  # of the polynomial
_NORM = 3.0  # up to it, what the polynomial leaves out is less than rounding
_MOST_SQUARINGS = 16


@decomposes(aten.linalg_matrix_exp.default)
def matrix_exp(matrix: Tensor) -> Tensor:
    """Taylor's polynomial of degree 18 of the matrix over a power of 2, squared as many times.

    How many is up to each matrix of a batch: every squaring is computed, and taken or not.
    """
    if not matrix.numel():
        return matrix.clone()
    norm = matrix.abs().sum(-2).amax(-1)[..., None, None]
    n_squarings = sum((norm > _NORM * 2.0**i).to(matrix.dtype) for i in range(_MOST_SQUARINGS))
    assert isinstance(n_squarings, Tensor), "there are squarings"
    result = _polynomial(matrix * torch.exp2(-n_squarings))
    for i in range(_MOST_SQUARINGS):
        result = torch.where(n_squarings > i, result @ result, result)
    return torch.where(
        norm > _NORM * 2.0**_MOST_SQUARINGS, torch.full_like(result, torch.nan), result
    )


def _polynomial(x: Tensor) -> Tensor:
    """Four terms at a time, of powers up to x³, then times x⁴: seven products."""
    one = torch.eye(x.shape[-1], dtype=x.dtype)
    square = x @ x
    powers = [one, x, square, x @ square]
    fourth = square @ square

    def terms(first: int) -> Tensor:
        exponents = range(first, min(first + 4, _DEGREE + 1))
        return sum((powers[i - first] / factorial(i) for i in exponents), torch.zeros_like(x))

    firsts = range(0, _DEGREE + 1, 4)
    result = terms(firsts[-1])
    for first in reversed(firsts[:-1]):
        result = terms(first) + fourth @ result
    return result
