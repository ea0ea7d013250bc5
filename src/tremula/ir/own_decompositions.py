"""Our own spellings of ATen operations, where PyTorch has none or one that does not suit tiles."""

from collections.abc import Callable

import torch
from torch import Tensor

aten = torch.ops.aten
OWN: dict[object, Callable] = {}


def spells(*overloads: object) -> Callable[[Callable], Callable]:
    """Enter the decorated function as the decomposition of ATen overloads."""

    def enter(function: Callable) -> Callable:
        for overload in overloads:
            OWN[overload] = function
        return function

    return enter


@spells(aten.addbmm.default)
def addbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """One product over batch and inner dimension together."""
    left = a.permute(1, 0, 2).reshape(a.shape[1], -1)
    right = b.reshape(-1, b.shape[2])
    return aten.addmm.default(bias, left, right, beta=beta, alpha=alpha)


@spells(aten._weight_norm_interface_backward.default)
def weight_norm_backward(
    gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Gradients of direction and length of weights g * v / |v|, one length per place of `dim`."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    along = (gradient * v).sum(others, keepdim=True)
    of_v = (g / norms) * (gradient - v * (along / (norms * norms)))
    return of_v, along / norms
