"""Slices from a place known only while the program runs: they go on at the beginning at the end."""

from typing import Any

import torch
from torch import Tensor

Context = Any  # what autograd keeps between a call and its gradient
_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("dynamic_slice(Tensor x, Tensor start, int dim, int size) -> Tensor")
_library.define("dynamic_update(Tensor x, Tensor update, Tensor start, int dim) -> Tensor")


def _places(x: Tensor, start: Tensor, dim: int, size: int) -> Tensor:
    steps = torch.arange(size, device=x.device)
    return (start.reshape(()).long() + steps) % x.shape[dim]


def _slice(x: Tensor, start: Tensor, dim: int, size: int) -> Tensor:
    return x.index_select(dim, _places(x, start, dim, size))


def _update(x: Tensor, update: Tensor, start: Tensor, dim: int) -> Tensor:
    return x.index_copy(dim, _places(x, start, dim, update.shape[dim]), update)


def _keep_slice(ctx: Context, inputs: tuple, output: Tensor) -> None:  # noqa: ARG001
    x, start, ctx.dim, _ = inputs
    ctx.shape = x.shape
    ctx.save_for_backward(start)


def _slice_gradient(ctx: Context, gradient: Tensor) -> tuple:
    (start,) = ctx.saved_tensors
    nought = gradient.new_zeros(ctx.shape)
    return torch.ops.tremula.dynamic_update(nought, gradient, start, ctx.dim), None, None, None


def _keep_update(ctx: Context, inputs: tuple, output: Tensor) -> None:  # noqa: ARG001
    _, update, start, ctx.dim = inputs
    ctx.update_shape = update.shape
    ctx.save_for_backward(start)


def _update_gradient(ctx: Context, gradient: Tensor) -> tuple:
    (start,) = ctx.saved_tensors
    nought = gradient.new_zeros(ctx.update_shape)
    of_x = torch.ops.tremula.dynamic_update(gradient, nought, start, ctx.dim)
    size = ctx.update_shape[ctx.dim]
    of_update = torch.ops.tremula.dynamic_slice(gradient, start, ctx.dim, size)
    return of_x, of_update, None, None


_library.impl("dynamic_slice", _slice, "CompositeExplicitAutograd")
_library.impl("dynamic_update", _update, "CompositeExplicitAutograd")
torch.library.register_autograd(
    "tremula::dynamic_slice", _slice_gradient, setup_context=_keep_slice, lib=_library
)
torch.library.register_autograd(
    "tremula::dynamic_update", _update_gradient, setup_context=_keep_update, lib=_library
)
