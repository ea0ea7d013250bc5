"""Decompositions of sorting, searching, running values, masks and lookups; PyTorch has none."""

import torch
from torch import Tensor

from tremula.ir.op_table import decomposes

aten = torch.ops.aten


# -- order -----------------------------------------------------------------------------------------


@decomposes(aten.median.dim)
def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of the two in the middle; NaN, which is sorted last, if there is one."""
    values, places = aten.sort.stable(x, stable=True, dim=dim)
    n = x.shape[dim]
    picked = [t.narrow(dim, (n - 1) // 2, 1) for t in (values, places)]
    if x.dtype.is_floating_point:
        last = [t.narrow(dim, n - 1, 1) for t in (values, places)]
        is_nan = last[0].isnan()
        picked = [torch.where(is_nan, a, b) for a, b in zip(last, picked, strict=True)]
    middle, place = picked if keepdim else [t.squeeze(dim) for t in picked]
    return middle, place


@decomposes(aten.median.default)
def median_of_all(x: Tensor) -> Tensor:
    return median(x.flatten(), 0)[0]


@decomposes(aten.nanmedian.dim)
def nanmedian(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median of the elements that are not NaN, which is sorted last."""
    values, places = aten.sort.stable(x, stable=True, dim=dim)
    n_numbers = (~x.isnan()).sum(dim, keepdim=True)
    middle = ((n_numbers - 1) // 2).clamp(min=0)
    picked = [t.gather(dim, middle) for t in (values, places)]
    found, place = picked if keepdim else [t.squeeze(dim) for t in picked]
    return found, place


@decomposes(aten.nanmedian.default)
def nanmedian_of_all(x: Tensor) -> Tensor:
    return nanmedian(x.flatten(), 0)[0]


@decomposes(aten.histc.default)
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements each bin has; the last one includes its upper border."""
    x = x.flatten()
    low, high = (x.min(), x.max()) if min == max else (x.new_full((), min), x.new_full((), max))
    if min == max:  # the range of the values, or one to either side if all are equal
        is_point = low == high
        low, high = torch.where(is_point, low - 1, low), torch.where(is_point, high + 1, high)
    places = ((x - low) * (bins / (high - low))).floor().clamp(0, bins - 1).to(torch.int64)
    is_inside = (x >= low) & (x <= high)
    return x.new_zeros(bins).scatter_add(0, places, is_inside.to(x.dtype))


@decomposes(aten.bucketize.Tensor)
def bucketize(
    x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    return _places_in(x.unsqueeze(-1), boundaries, out_int32, right)


@decomposes(aten.searchsorted.Tensor)
def searchsorted(
    sequence: Tensor,
    x: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    if sorter is not None:
        sequence = sequence.gather(-1, sorter)
    if sequence.dim() > 1:
        sequence = sequence.unsqueeze(-2)
    return _places_in(x.unsqueeze(-1), sequence, out_int32, right or side == "right")


def _places_in(x: Tensor, boundaries: Tensor, is_int32: bool, is_right: bool) -> Tensor:
    """How many boundaries lie below (or at) each value: all are compared at once."""
    is_below = boundaries <= x if is_right else boundaries < x
    return is_below.sum(-1, dtype=torch.int32 if is_int32 else torch.int64)


# -- running values: in log2(n) steps, each joins what lies 1, 2, 4, … before ----------------------


def _before(x: Tensor, dim: int, step: int) -> Tensor:
    """Each element's neighbour `step` places before it; the first ones are their own."""
    n = x.shape[dim]
    return torch.cat([x.narrow(dim, 0, step), x.narrow(dim, 0, n - step)], dim)


def _running(x: Tensor, dim: int, is_max: bool) -> tuple[Tensor, Tensor]:
    """Running extremes and their places. Of equals the later counts; NaN stays."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    places = _positions(x, dim)
    step = 1
    while step < x.shape[dim]:
        old, place = _before(x, dim, step), _before(places, dim, step)
        is_old = old > x if is_max else old < x
        if x.dtype.is_floating_point:
            is_old = (is_old | old.isnan()) & ~x.isnan()
        x, places = torch.where(is_old, old, x), torch.where(is_old, place, places)
        step *= 2
    return x, places


def _positions(x: Tensor, dim: int) -> Tensor:
    n = x.shape[dim]
    shape = [n if d == dim % x.dim() else 1 for d in range(x.dim())]
    return torch.arange(n, device=x.device).reshape(shape).expand(x.shape)


@decomposes(aten.cummax.default)
def cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running(x, dim, True)


@decomposes(aten.cummin.default)
def cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running(x, dim, False)


@decomposes(aten.logcumsumexp.default)
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    if not x.dim():
        return x.clone()
    is_new = _positions(x, dim)
    step = 1
    while step < x.shape[dim]:
        joined = torch.logaddexp(x, _before(x, dim, step))
        x = torch.where(is_new >= step, joined, x)
        step *= 2
    return x


# -- masks and places ------------------------------------------------------------------------------


@decomposes(aten.put.default)
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = aten.index_put(x.flatten(), [index.flatten()], source.flatten(), accumulate)
    return flat.reshape(x.shape)


# -- writes through masks and at rows, lookups that change their table -----------------------------


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
    """Elements of the source that were used get their gradient, the others zero."""
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
