"""A linear layer whose sparse weight has a pattern that is data, as operations of PyTorch.

Values [slots, side, side] are in the order of PopSparse's buckets, each block by its columns; rows
and columns say where the host finds the block of a slot (-1: nowhere), meta_info says so to tiles.
"""

from typing import Any

import torch
from torch import Tensor

_library = torch.library.Library("tremula", "FRAGMENT")
_PATTERN = "Tensor meta_info, Tensor rows, Tensor columns, int n_values"
_library.define(f"dynamic_sparse(Tensor values, Tensor x, {_PATTERN}, int n_out) -> Tensor")
_library.define(f"dynamic_sparse_x(Tensor values, Tensor grad, {_PATTERN}, int n_in) -> Tensor")
_library.define(f"dynamic_sparse_values(Tensor grad, Tensor x, {_PATTERN}, int side) -> Tensor")


def dense_weight(values: Tensor, rows: Tensor, columns: Tensor, n_out: int, n_in: int) -> Tensor:
    """The weight [n_out, n_in] with zeros."""
    side = values.shape[-1]
    grid = values.new_zeros(n_out // side, n_in // side, side, side)
    there = values.mT * (rows >= 0)[:, None, None]
    places = rows.clamp(min=0).long(), columns.clamp(min=0).long()
    return grid.index_put(places, there, accumulate=True).transpose(1, 2).reshape(n_out, n_in)


def _linear(
    values: Tensor, x: Tensor, _meta: Tensor, rows: Tensor, columns: Tensor, _n: int, n_out: int
) -> Tensor:
    return x @ dense_weight(values, rows, columns, n_out, x.shape[1]).mT


def _x_gradient(
    values: Tensor, grad: Tensor, _meta: Tensor, rows: Tensor, columns: Tensor, _n: int, n_in: int
) -> Tensor:
    return grad @ dense_weight(values, rows, columns, grad.shape[1], n_in)


def _values_gradient(
    grad: Tensor, x: Tensor, _meta: Tensor, rows: Tensor, columns: Tensor, _n: int, side: int
) -> Tensor:
    whole = grad.mT @ x
    blocks = whole.view(grad.shape[1] // side, side, x.shape[1] // side, side).transpose(1, 2)
    own = blocks[rows.clamp(min=0).long(), columns.clamp(min=0).long()]
    return own.mT * (rows >= 0)[:, None, None]


_library.impl("dynamic_sparse", _linear, "CompositeExplicitAutograd")
_library.impl("dynamic_sparse_x", _x_gradient, "CompositeExplicitAutograd")
_library.impl("dynamic_sparse_values", _values_gradient, "CompositeExplicitAutograd")


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ANN401, ARG001
    values, x, meta, rows, columns, ctx.n_values, _ = inputs
    ctx.save_for_backward(values, x, meta, rows, columns)


def _gradients(ctx: Any, grad: Tensor) -> tuple:  # noqa: ANN401
    values, x, *pattern = ctx.saved_tensors
    ops, n = torch.ops.tremula, ctx.n_values
    of_x = ops.dynamic_sparse_x(values, grad, *pattern, n, x.shape[1])
    of_values = ops.dynamic_sparse_values(grad, x, *pattern, n, values.shape[-1])
    return of_values, of_x, None, None, None, None, None


torch.library.register_autograd(
    "tremula::dynamic_sparse", _gradients, setup_context=_keep, lib=_library
)
