"""Sparse tensors of PyTorch in a model: constants of fixed pattern, multiplied with dense ones."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from tremula.ir.errors import CaptureError
from tremula.ir.ops.sparse import sparse_mm
from tremula.ir.ops.sparse_pattern import SparsePattern
from tremula.ir.recording import Recording

_PRODUCTS: frozenset[Callable] = frozenset(
    {
        torch.sparse.mm, torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__,
        torch.mv, Tensor.mv,
    }
)  # fmt: skip
_SIDES = (4, 8, 16)  # of blocks that tiles multiply; others are taken apart


def is_sparse(value: object) -> bool:
    """Whether a value is a sparse tensor of PyTorch, of whatever layout."""
    return isinstance(value, Tensor) and value.layout is not torch.strided


def meets_dense(args: tuple, kwargs: dict) -> bool:
    """Whether a call has a sparse tensor and one that is being recorded."""
    values = (*args, *kwargs.values())
    return any(is_sparse(v) for v in values) and any(isinstance(v, FakeTensor) for v in values)


def run(state: Recording, func: Callable, args: tuple, kwargs: dict) -> Tensor:
    """The product that a call means; other calls with sparse tensors are refused."""
    if func is F.linear:
        return _linear(state, *args, **kwargs)
    if func not in _PRODUCTS or len(args) != 2:
        name = getattr(func, "__name__", str(func))
        raise CaptureError(
            f"{name} of a sparse tensor cannot be compiled: sparse tensors are multiplied with "
            "dense ones, by torch.sparse.mm, @, mm, mv or linear. Call to_dense() for all else."
        )
    left, right = args
    if is_sparse(left) and is_sparse(right):
        raise CaptureError("products of two sparse tensors cannot be compiled: make one dense")
    if is_sparse(left):
        return _times(state, left, right)
    return _times(state, right, left.mT, transposed=True).mT


def _linear(state: Recording, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    out = _times(state, weight, rows.mT).mT.reshape(*x.shape[:-1], weight.shape[0])
    return out if bias is None else out + bias


def _times(state: Recording, sparse: Tensor, dense: Tensor, *, transposed: bool = False) -> Tensor:
    """The sparse matrix, or the transposed one, by a dense matrix or vector."""
    if isinstance(sparse, FakeTensor):
        raise CaptureError(
            "a sparse tensor that the model computes cannot be compiled, since its pattern is not "
            "known: compute it before, and register it as a buffer"
        )
    if dense.dim() > 2:
        raise CaptureError(
            f"a sparse tensor by a dense one of {list(dense.shape)}: expected a matrix or a vector"
        )
    with _disable_current_modes():  # a constant's pattern is a fact, not a part of the program
        pattern, values = pattern_of(sparse)
    nonzeros = state.recorder.bring_in(values.to(dense.dtype))
    columns = dense if dense.dim() == 2 else dense.unsqueeze(1)
    out = sparse_mm(nonzeros, columns, pattern, transposed=transposed)
    return out if dense.dim() == 2 else out.squeeze(1)


def pattern_of(sparse: Tensor) -> tuple[SparsePattern, Tensor]:
    """The pattern of a sparse tensor, and its values [blocks, side, side] in that order."""
    from tremula.poplibs.popsparse import CSRMatrix  # the tile side is loaded where it is used

    if sparse.dim() != 2:
        raise CaptureError(f"a sparse tensor of {list(sparse.shape)}: expected a matrix")
    result, (n_rows, n_columns) = sparse.detach(), sparse.shape
    side = _side_of(result)
    if side == 1:
        result = (
            result.to_dense().to_sparse_csr() if _is_blocked(result) else result.to_sparse_csr()
        )
    values = result.values().reshape(-1, side, side)
    area = side * side
    matrix = CSRMatrix(
        n_rows, n_columns, np.ones(len(values) * area, np.float32),
        result.col_indices().numpy().astype(np.int64) * side,
        result.crow_indices().numpy().astype(np.int64) * area, (side, side),
    )  # fmt: skip
    return SparsePattern.of(matrix), values


def _is_blocked(sparse: Tensor) -> bool:
    return sparse.layout in (torch.sparse_bsr, torch.sparse_bsc)


def _side_of(sparse: Tensor) -> int:
    """The side of its blocks, if they are blocks that tiles have; else 1."""
    if sparse.layout is not torch.sparse_bsr:
        return 1
    rows, columns = sparse.values().shape[1:]
    return rows if rows == columns and rows in _SIDES else 1
