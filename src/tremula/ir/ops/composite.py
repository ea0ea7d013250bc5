"""Operations of our own with a gradient: plain mathematics to the host, a program to tiles."""

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
