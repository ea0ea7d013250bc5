"""Our own spellings of writes through masks and at rows, and of lookups that change their table."""

import torch
from torch import Tensor

from tremula.ir.decompositions.table import decomposes

aten = torch.ops.aten


@decomposes(aten.masked_scatter.default)
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


@decomposes(aten.masked_scatter_backward.default)
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


@decomposes(aten.embedding_renorm.default)
def embedding_renorm(table: Tensor, rows: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows that are looked up and longer than `max_norm` are scaled down to it."""
    norms = torch.linalg.vector_norm(table, norm_type, 1)
    is_used = table.new_zeros(len(table)).index_fill(0, rows.flatten(), 1) > 0
    scale = torch.where(is_used & (norms > max_norm), max_norm / (norms + 1e-7), 1)
    return table * scale.unsqueeze(1)


@decomposes(aten.index_reduce.default)
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    shape = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
    places = index.reshape(shape).expand(source.shape)
    return x.scatter_reduce(dim, places, source, reduce, include_self=include_self)
