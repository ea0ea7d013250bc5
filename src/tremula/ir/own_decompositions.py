"""Our own spellings of ATen operations, where PyTorch has none or leads away from the tiles' strengths."""

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


@spells(aten.addmm.default)
def addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = aten.mm.default(a, b)
    if alpha != 1:
        product = product * alpha
    return product + (bias * beta if beta != 1 else bias)
