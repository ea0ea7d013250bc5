"""Decompositions of eigen- and singular values and what is computed from them.

All come from one step, `tremula::orthogonal_columns`: Jacobi's rotations of pairs of columns. The
signs of vectors, which the mathematics leaves open, need not be those of LAPACK.
"""

import torch
from torch import Tensor

from tremula.ir.op_table import decomposes
from tremula.ir.ops import linear_algebra as _linear_algebra  # noqa: F401  registers tremula::…

aten = torch.ops.aten


def _columns(x: Tensor, order: Tensor) -> Tensor:
    """The columns of matrices in the order of places [..., n]."""
    return x.gather(-1, order.unsqueeze(-2).expand(x.shape))


def _rotations(matrix: Tensor) -> Tensor:
    """V such that the columns of matrix · V are orthogonal.

    It is the product of very many rotations; a step of Newton's removes what they rounded.
    """
    _, v = torch.ops.tremula.orthogonal_columns(matrix)
    return 1.5 * v - 0.5 * (v @ (v.mT @ v))


def _largest(x: Tensor) -> Tensor:
    """What to divide matrices by so that no square overflows; 1 for zeros."""
    size = x.abs().amax((-2, -1), keepdim=True)
    return torch.where(size == 0, torch.ones_like(size), size)


# -- eigenvalues of symmetric matrices -------------------------------------------------------------


@decomposes(aten._linalg_eigh.default)
def eigh(matrix: Tensor, uplo: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """Jacobi's rotations of the matrix with all eigenvalues moved above 0; no vector turns."""
    triangle = matrix.tril() if uplo.upper() == "L" else matrix.triu()
    symmetric = triangle + triangle.mT - torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1))
    if not matrix.numel():
        return matrix.new_zeros(matrix.shape[:-1]), matrix.new_zeros(_shape_of_v(matrix, compute_v))
    bound = symmetric.abs().sum(-1).amax(-1)[..., None, None]  # no eigenvalue is larger
    bound = torch.where(bound == 0, torch.ones_like(bound), bound)
    moved = symmetric / bound + torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    vectors = _rotations(moved)
    values = (vectors * (symmetric @ vectors)).sum(-2)
    values, order = torch.sort(values, -1)
    if not compute_v:
        return values, matrix.new_zeros([0])
    return values, _columns(vectors, order)


def _shape_of_v(matrix: Tensor, compute_v: bool) -> list[int]:
    return list(matrix.shape) if compute_v else [0]


# -- singular values -------------------------------------------------------------------------------


@decomposes(aten._linalg_svd.default)
def svd(
    matrix: Tensor,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Jacobi's rotations of columns give values and one side, QR of the columns the other."""
    del driver
    n_rows, n_columns = matrix.shape[-2:]
    if n_rows < n_columns:
        u, values, vh = svd(matrix.mT, full_matrices, compute_uv)
        return (vh.mT, values, u.mT) if compute_uv else (u, values, vh)
    if not matrix.numel():
        return _svd_of_nothing(matrix, full_matrices, compute_uv)
    size = _largest(matrix)
    vectors = _rotations(matrix / size)
    columns = (matrix / size) @ vectors
    lengths, order = torch.sort((columns * columns).sum(-2).sqrt(), -1, descending=True)
    values = lengths * size[..., 0]
    if not compute_uv:
        return matrix.new_zeros([0]), values, matrix.new_zeros([0])
    mode = "complete" if full_matrices else "reduced"
    q, r = torch.linalg.qr(_columns(columns, order), mode)
    is_negative = r.diagonal(dim1=-2, dim2=-1).unsqueeze(-2) < 0
    used, rest = q[..., :n_columns], q[..., n_columns:]
    u = torch.cat([torch.where(is_negative, -used, used), rest], -1)
    return u, values, _columns(vectors, order).mT


def _svd_of_nothing(
    matrix: Tensor, full_matrices: bool, compute_uv: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Of matrices without rows, columns or batches; n_rows is at least n_columns."""
    *batch, n_rows, n_columns = matrix.shape
    values = matrix.new_zeros([*batch, n_columns])
    if not compute_uv:
        return matrix.new_zeros([0]), values, matrix.new_zeros([0])
    width = n_rows if full_matrices else n_columns
    one = torch.eye(n_rows, width, dtype=matrix.dtype)
    return (
        one.expand(*batch, n_rows, width),
        values,
        matrix.new_zeros([*batch, n_columns, n_columns]),
    )


@decomposes(aten.linalg_pinv.atol_rtol_tensor)
def pinv(
    matrix: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:  # fmt: skip
    """From singular values, or eigenvalues if it is symmetric: those above the limit inverted."""
    if not matrix.numel():
        return matrix.new_zeros(matrix.mT.shape)
    if hermitian:
        values, u = aten._linalg_eigh.default(matrix)
        sizes, v = values.abs(), u
    else:
        u, values, vh = aten._linalg_svd.default(matrix)
        sizes, v = values, vh.mT
    limit = _limit(matrix, sizes.amax(-1, keepdim=True), atol, rtol)
    inverted = torch.where(sizes > limit, 1 / values, torch.zeros_like(values))
    return (v * inverted.unsqueeze(-2)) @ u.mT


def _limit(matrix: Tensor, largest: Tensor, atol: Tensor | None, rtol: Tensor | None) -> Tensor:
    """The larger of the absolute limit and the relative one, which has PyTorch's default."""
    if rtol is None:
        default = torch.finfo(torch.float32).eps * max(matrix.shape[-2:])
        relative = torch.full_like(largest, default)
        if atol is not None:
            relative = torch.where(atol.unsqueeze(-1) > 0, torch.zeros_like(relative), relative)
    else:
        relative = rtol.unsqueeze(-1).to(matrix.dtype)
    limit = relative * largest
    return limit if atol is None else torch.maximum(limit, atol.unsqueeze(-1).to(matrix.dtype))
