"""Our own spellings of writes through masks: choices by element instead of numbers of elements."""

import torch
from torch import Tensor

from tremula.ir.own_decompositions import spells

aten = torch.ops.aten


@spells(aten.masked_scatter.default)
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The n-th true element gets the n-th of the source: a running count says which that is."""
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    mask = mask.expand(shape)
    if not mask.numel() or not source.numel():
        return x.expand(shape).clone()
    count = torch.cumsum(mask.reshape(-1).to(torch.int32), 0, dtype=torch.int32)
    places = torch.clamp(count - 1, 0, source.numel() - 1)
    values = torch.index_select(source.reshape(-1), 0, places).reshape(shape)
    return torch.where(mask, values, x)


@spells(aten.masked_scatter_backward.default)
def masked_scatter_backward(gradient: Tensor, mask: Tensor, sizes: list[int]) -> Tensor:
    """Elements of the source that were used get their gradient back, the others none."""
    mask = mask.expand(gradient.shape).reshape(-1)
    n = 1
    for size in sizes:
        n *= size
    count = torch.cumsum(mask.to(torch.int32), 0, dtype=torch.int32)
    places = torch.clamp(count - 1, 0, max(n - 1, 0))
    values = torch.where(mask, gradient.reshape(-1), gradient.new_zeros(()))
    return torch.index_add(gradient.new_zeros(n), 0, places, values).reshape(sizes)
