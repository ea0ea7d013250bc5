"""Products of Householder's reflections: all of them at once, H₁…Hₖ = I - V·T·Vᵀ."""

import torch
from torch import Tensor

from tremula.ir.op_table import decomposes

aten = torch.ops.aten


def _joined(packed: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """V and T of reflections packed as LAPACK has them: below a diagonal of ones.

    T is the inverse of a triangle, 1 / tau on its diagonal and VᵀV above it; written so that a
    reflection by nothing, whose tau is zero, needs no division.
    """
    n_rows, k = packed.shape[-2], tau.shape[-1]
    one = torch.eye(n_rows, k, dtype=packed.dtype, device=packed.device)
    v = packed[..., :k].tril(-1) + one
    factors = torch.diag_embed(tau)
    triangle = factors @ (v.mT @ v).triu(1)
    t = torch.linalg.solve_triangular(triangle, factors, upper=True, unitriangular=True)
    return v, t


@decomposes(aten.linalg_householder_product.default)
def householder_product(packed: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product, as many as the matrix has."""
    n_rows, n = packed.shape[-2:]
    one = torch.eye(n_rows, n, dtype=packed.dtype, device=packed.device)
    if not packed.numel() or not tau.numel():
        return one.expand(packed.shape).clone()
    v, t = _joined(packed, tau)
    return one - v @ (t @ v[..., :n, :].mT)


@decomposes(aten.ormqr.default)
def ormqr(
    packed: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """The product of the reflections, or its transpose, times a matrix, without making it."""
    if not other.numel() or not tau.numel():
        return other.clone()
    v, t = _joined(packed, tau)
    t = t.mT if transpose else t
    if left:
        return other - v @ (t @ (v.mT @ other))
    return other - ((other @ v) @ t) @ v.mT
