"""Tremula's operations with a gradient: plain mathematics on the host, a program on tiles."""

from typing import Any

import torch
from torch import Tensor

_library = torch.library.Library("tremula", "FRAGMENT")

# -- serialized_mm: the value of matmul, computed on tiles in parts one after the other ------------

_library.define(
    "serialized_mm(Tensor a, Tensor b, str mode, int factor, bool keep_precision) -> Tensor"
)
# A part of one dimension is a part of the same dimension in both gradients' products.
_MODES_OF_GRADIENTS = {
    "input_channels": ("input_channels", "reducing_dim"),
    "reducing_dim": ("output_channels", "input_channels"),
    "output_channels": ("reducing_dim", "output_channels"),
}


def _serialized_mm(a: Tensor, b: Tensor, _mode: str, _factor: int, _keep_precision: bool) -> Tensor:
    return torch.matmul(a, b)


def _keep_operands(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ANN401, ARG001
    a, b, *ctx.how = inputs
    ctx.save_for_backward(a, b)


def _serialized_mm_gradients(ctx: Any, gradient: Tensor) -> tuple:  # noqa: ANN401
    a, b = ctx.saved_tensors
    mode, factor, keep_precision = ctx.how
    of_a, of_b = _MODES_OF_GRADIENTS.get(mode, ("none", "none"))
    rows = a.flatten(0, -2) if b.dim() == 2 else a
    flat = gradient.flatten(0, -2) if b.dim() == 2 else gradient
    multiply = torch.ops.tremula.serialized_mm
    left = multiply(gradient, b.transpose(-1, -2), of_a, factor, keep_precision)
    right = multiply(rows.transpose(-1, -2), flat, of_b, factor, keep_precision)
    return left, right, None, None, None


_library.impl("serialized_mm", _serialized_mm, "CompositeExplicitAutograd")
torch.library.register_autograd(
    "tremula::serialized_mm",
    _serialized_mm_gradients,
    setup_context=_keep_operands,
    lib=_library,
)


# -- slices from a place known only while the program runs; they wrap around -----------------------


Context = Any  # what autograd keeps between a call and its gradient
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
    zeros = gradient.new_zeros(ctx.shape)
    return torch.ops.tremula.dynamic_update(zeros, gradient, start, ctx.dim), None, None, None


def _keep_update(ctx: Context, inputs: tuple, output: Tensor) -> None:  # noqa: ARG001
    _, update, start, ctx.dim = inputs
    ctx.update_shape = update.shape
    ctx.save_for_backward(start)


def _update_gradient(ctx: Context, gradient: Tensor) -> tuple:
    (start,) = ctx.saved_tensors
    zeros = gradient.new_zeros(ctx.update_shape)
    of_x = torch.ops.tremula.dynamic_update(gradient, zeros, start, ctx.dim)
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
