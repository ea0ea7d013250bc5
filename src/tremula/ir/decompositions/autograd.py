"""Gradients by autograd, for backward operations whose forward one decomposes."""

from collections.abc import Callable

import torch
from torch import Tensor


def gradients_by_autograd(
    function: Callable[..., Tensor], gradient: Tensor, *operands: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of a function's operands, for one of ATen's backward operations."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in operands]
        y = function(*leaves)
    return torch.autograd.grad(y, leaves, gradient)
