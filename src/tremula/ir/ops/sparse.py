"""Products of sparse matrices of fixed pattern as operations of PyTorch, with gradients.

An operation names its pattern by number (`SparsePattern.number`). Values are [blocks, side, side]
in the pattern's order; the sparse matrix is [m, k], or [k, m] where a product is with the
transposed one.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tremula.ir.ops import sparse_gpu
from tremula.ir.ops.sparse_pattern import SparsePattern, pattern_numbered

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("sparse_mm(Tensor values, Tensor dense, int pattern, bool transposed) -> Tensor")
_library.define("sparse_mm_values(Tensor gradient, Tensor dense, int pattern) -> Tensor")


def _oriented(values: Tensor, number: int, transposed: bool) -> tuple[Tensor, SparsePattern]:
    """Values and pattern of the left matrix."""
    pattern = pattern_numbered(number)
    if not transposed:
        return values, pattern
    turned, order = pattern.transposed
    return values[torch.from_numpy(order).to(values.device).long()].mT.contiguous(), turned


def _on_cpu(values: Tensor, dense: Tensor, number: int, transposed: bool) -> Tensor:
    from tremula.codelets.native import host_sparse

    own, pattern = _oriented(values, number, transposed)
    n, side = dense.shape[1], pattern.side
    out = np.empty(pattern.n_rows * n, np.float32)
    starts = pattern.row_start.astype(np.int64)
    offsets = pattern.columns.astype(np.int64) * (side * n)
    flat = [t.detach().float().contiguous().view(-1).numpy() for t in (own, dense)]
    if side == 1:
        host_sparse.element_product(flat[0], starts, offsets, flat[1], out, n)
    else:
        host_sparse.block_product(flat[0], starts, offsets, flat[1], out, side, n)
    return torch.from_numpy(out).view(-1, n).to(dense.dtype)


def _values_on_cpu(gradient: Tensor, dense: Tensor, number: int) -> Tensor:
    from tremula.codelets.native import host_sparse

    pattern = pattern_numbered(number)
    out = np.empty((pattern.n_blocks, pattern.side, pattern.side), np.float32)
    left, right = (t.detach().float().contiguous().numpy() for t in (gradient, dense))
    host_sparse.sampled_product(left, right, pattern.rows, pattern.columns, out, pattern.side)
    return torch.from_numpy(out).to(dense.dtype)


def _on_gpu(values: Tensor, dense: Tensor, number: int, transposed: bool) -> Tensor:
    own, pattern = _oriented(values, number, transposed)
    row_start, columns, _ = pattern.on(dense.device)
    return sparse_gpu.block_product(sparse_gpu.Blocks(own, row_start, columns), dense)


def _values_on_gpu(gradient: Tensor, dense: Tensor, number: int) -> Tensor:
    pattern = pattern_numbered(number)
    _, columns, rows = pattern.on(dense.device)
    return sparse_gpu.sampled_product(gradient, dense, rows, columns, pattern.side)


_library.impl("sparse_mm", _on_cpu, "CPU")
_library.impl("sparse_mm", _on_gpu, "CUDA")
_library.impl("sparse_mm_values", _values_on_cpu, "CPU")
_library.impl("sparse_mm_values", _values_on_gpu, "CUDA")


@torch.library.register_fake("tremula::sparse_mm", lib=_library)
def _fake_mm(values: Tensor, dense: Tensor, number: int, transposed: bool) -> Tensor:  # noqa: ARG001
    pattern = pattern_numbered(number)
    return dense.new_empty(pattern.n_columns if transposed else pattern.n_rows, dense.shape[1])


@torch.library.register_fake("tremula::sparse_mm_values", lib=_library)
def _fake_values(gradient: Tensor, dense: Tensor, number: int) -> Tensor:  # noqa: ARG001
    pattern = pattern_numbered(number)
    return dense.new_empty(pattern.n_blocks, pattern.side, pattern.side)


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ANN401, ARG001
    values, dense, ctx.pattern, ctx.transposed = inputs
    ctx.save_for_backward(values, dense)


def _gradients(ctx: Any, gradient: Tensor) -> tuple:  # noqa: ANN401
    values, dense = ctx.saved_tensors
    of_dense = of_values = None
    if ctx.needs_input_grad[1]:
        of_dense = torch.ops.tremula.sparse_mm(values, gradient, ctx.pattern, not ctx.transposed)
    if ctx.needs_input_grad[0]:
        pair = (dense, gradient) if ctx.transposed else (gradient, dense)
        of_values = torch.ops.tremula.sparse_mm_values(*pair, ctx.pattern)
    return of_values, of_dense, None, None


torch.library.register_autograd("tremula::sparse_mm", _gradients, setup_context=_keep, lib=_library)


def sparse_mm(
    values: Tensor, dense: Tensor, pattern: SparsePattern, *, transposed: bool = False
) -> Tensor:
    """The matrix of a pattern and values, or the transposed one, by a dense [k, n]."""
    return torch.ops.tremula.sparse_mm(values, dense, pattern.number, transposed)
