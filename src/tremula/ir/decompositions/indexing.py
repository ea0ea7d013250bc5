"""Decompositions of sorting, searching, running values, masks and lookups; PyTorch has none."""

import math

import torch
from torch import Tensor

from tremula.ir.decompositions.autograd import gradients_by_autograd
from tremula.ir.op_table import decomposes

aten = torch.ops.aten


# -- order -----------------------------------------------------------------------------------------


@decomposes(aten.median.dim)
def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of the two in the middle; NaN, which is sorted last, if there is one."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
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
    result, place = picked if keepdim else [t.squeeze(dim) for t in picked]
    return result, place


@decomposes(aten.nanmedian.default)
def nanmedian_of_all(x: Tensor) -> Tensor:
    return nanmedian(x.flatten(), 0)[0]


@decomposes(aten.mode.default)
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest of the most frequent values, and the last place that has it."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, order = aten.sort.stable(x, stable=True, dim=dim)
    values, order = values.movedim(dim, -1), order.movedim(dim, -1)
    places = torch.arange(values.shape[-1], device=x.device)
    begins = torch.ones_like(values, dtype=torch.bool)
    begins[..., 1:] = values[..., 1:] != values[..., :-1]
    begin = _running(torch.where(begins, places, 0), -1, True)[0]  # of the run of equal values
    length = places - begin + 1  # so far; whole at the last of a run, the first of the longest
    is_longest = length == length.amax(-1, keepdim=True)
    last = torch.where(is_longest, places, len(places)).amin(-1, keepdim=True)
    result, place = (t.gather(-1, last).movedim(-1, dim) for t in (values, order))
    return (result, place) if keepdim else (result.squeeze(dim), place.squeeze(dim))


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


@decomposes(aten.bucketize.Scalar)
def bucketize_number(
    x: float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """As of a tensor with one element."""
    return bucketize(boundaries.new_full((), x), boundaries, out_int32=out_int32, right=right)


@decomposes(aten.searchsorted.Scalar)
def searchsorted_number(
    sequence: Tensor, x: float, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """As of a tensor with one element."""
    value = sequence.new_full((), x)
    how = {"out_int32": out_int32, "right": right, "side": side, "sorter": sorter}
    return searchsorted(sequence, value, **how)


def _places_in(x: Tensor, boundaries: Tensor, is_int32: bool, is_right: bool) -> Tensor:
    """How many boundaries are below (or at) each value: all are compared at once."""
    is_below = boundaries <= x if is_right else boundaries < x
    return is_below.sum(-1, dtype=torch.int32 if is_int32 else torch.int64)


# -- running values: in log2(n) steps, each joins what is 1, 2, 4, … before ----------------------


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


@decomposes(aten.take.default)
def take(x: Tensor, index: Tensor) -> Tensor:
    """Elements by their place in the flattened tensor; negative places count from its end."""
    places = index.flatten()
    places = torch.where(places < 0, places + x.numel(), places)
    return x.flatten().index_select(0, places).reshape(index.shape)


@decomposes(aten.narrow_copy.default)
def narrow_copy(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A view of some rows, and a copy of it."""
    return torch.narrow(x, dim, start, length).clone()


@decomposes(aten.resize.default)
def resize(x: Tensor, size: list[int], *, memory_format: object = None) -> Tensor:
    """The first elements in another shape; added ones are zeros, where PyTorch says nothing."""
    del memory_format
    flat, n = x.flatten(), math.prod(size)
    if n > flat.numel():
        flat = torch.cat([flat, flat.new_zeros(n - flat.numel())])
    return flat.narrow(0, 0, n).reshape(size)


@decomposes(aten.nonzero_static.default)
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Rows of places of elements that are not zero: as many as requested, then the fill value."""
    is_found = (x != 0).flatten()
    rank = torch.cumsum(is_found.to(torch.int32), 0, dtype=torch.int32) - 1
    wanted = torch.arange(size, dtype=torch.int32, device=x.device).unsqueeze(1)
    is_row = (rank == wanted) & is_found  # [size, n]: at most one true in each row
    step, columns = x.numel(), []
    places = torch.arange(x.numel(), dtype=torch.int64, device=x.device)
    for n in x.shape:
        step //= max(n, 1)
        place = torch.where(is_row, (places // max(step, 1)) % max(n, 1), 0).sum(1)
        columns.append(torch.where(is_row.any(1), place, fill_value))
    return torch.stack(columns, 1) if columns else places.new_zeros(size, 0)


# -- bins ------------------------------------------------------------------------------------------


@decomposes(aten.histogram.bins_tensor)
def histogram(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """How many elements, or what weight, are between each two borders."""
    points = x.reshape(-1, 1)
    weights = None if weight is None else weight.reshape(-1)
    return _histogram(points, [bins], weights, density), bins.clone()


@decomposes(aten.histogram.bin_ct)
def histogram_of_equal_bins(
    x: Tensor, bins: int = 100, *, range: list[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As with borders; by default they span the values."""
    (borders,) = _equal_borders(x.reshape(-1, 1), [bins], range)
    return histogram(x, borders, weight=weight, density=density)


@decomposes(aten._histogramdd_bin_edges.default)
def histogramdd_borders(
    x: Tensor, bins: list[int], *, range: list[float] | None = None,
    weight: Tensor | None = None, density: bool = False,
) -> list[Tensor]:  # fmt: skip
    """Borders of equal bins along each dimension."""
    del weight, density
    return _equal_borders(x.reshape(-1, x.shape[-1]), bins, range)


@decomposes(aten._histogramdd_from_bin_cts.default)
def histogramdd_of_equal_bins(
    x: Tensor, bins: list[int], *, range: list[float] | None = None,
    weight: Tensor | None = None, density: bool = False,
) -> Tensor:  # fmt: skip
    """How many points are in each cell of a grid of equal cells."""
    borders = histogramdd_borders(x, bins, range=range)
    return histogramdd(x, borders, weight=weight, density=density)


@decomposes(aten._histogramdd_from_bin_tensors.default)
def histogramdd(
    x: Tensor, bins: list[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """How many points are in each cell of a grid."""
    weights = None if weight is None else weight.reshape(-1)
    return _histogram(x.reshape(-1, x.shape[-1]), bins, weights, density)


def _equal_borders(points: Tensor, bins: list[int], limits: list[float] | None) -> list[Tensor]:
    """One dimension after the other; a point is widened by a half to either side."""
    borders = []
    for d, n in enumerate(bins):
        if limits is not None:
            low, high = (points.new_full((), value) for value in limits[2 * d : 2 * d + 2])
        elif len(points):
            low, high = points[:, d].amin(), points[:, d].amax()
        else:
            low, high = points.new_zeros(()), points.new_ones(())
        is_point = low == high
        low, high = torch.where(is_point, low - 0.5, low), torch.where(is_point, high + 0.5, high)
        steps = torch.arange(n + 1, dtype=points.dtype, device=points.device)
        width = (high - low) / n
        from_end = high - (n - steps) * width
        borders.append(torch.where(steps < (n + 1) / 2, low + steps * width, from_end))
    return borders


def _histogram(
    points: Tensor, borders: list[Tensor], weights: Tensor | None, is_density: bool
) -> Tensor:
    """A point is in a bin from its lower border on; the last bin includes its upper one."""
    sizes = [len(border) - 1 for border in borders]
    place = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    is_inside = torch.ones(len(points), dtype=torch.bool, device=points.device)
    for d, (border, n) in enumerate(zip(borders, sizes, strict=True)):
        x = points[:, d].contiguous()
        is_inside = is_inside & (x >= border[0]) & (x <= border[-1])
        place = place * n + (_places_in(x.unsqueeze(-1), border, False, True) - 1).clamp(0, n - 1)
    share = torch.ones_like(points[:, 0]) if weights is None else weights.to(points.dtype)
    counts = points.new_zeros(math.prod(sizes))
    counts = counts.scatter_add(0, place, torch.where(is_inside, share, 0)).reshape(sizes)
    if is_density:
        counts = counts / counts.sum()
        for d, border in enumerate(borders):
            shape = [-1 if other == d else 1 for other in range(len(sizes))]
            counts = counts / border.diff().reshape(shape)
    return counts


# -- segments --------------------------------------------------------------------------------------


@decomposes(aten.segment_reduce.default)
def segment_reduce(
    x: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Each segment is reduced under a mask of the elements that belong to it."""
    del indices, unsafe
    mask, x = _segments(x, lengths, offsets, axis)
    at = axis + 1  # of the elements; `axis` is now the segments
    if reduce in ("sum", "mean"):
        total = torch.where(mask, x, 0).sum(at) + (initial or 0)
        if reduce == "sum":
            return total
        count = mask.sum(at)
        empty = math.nan if initial is None else initial
        return torch.where(count > 0, total / count.clamp(min=1), empty)
    if reduce == "prod":
        return torch.where(mask, x, 1).prod(at) * (1 if initial is None else initial)
    is_max = reduce == "max"
    nothing = -math.inf if is_max else math.inf
    result = torch.where(mask, x, nothing)
    result = result.amax(at) if is_max else result.amin(at)
    if initial is None:
        return result
    return result.clamp(min=initial) if is_max else result.clamp(max=initial)


def _segments(
    x: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int
) -> tuple[Tensor, Tensor]:
    """A mask [… segments, elements …] by which x, of as many dimensions, is reduced."""
    if offsets is None:
        assert lengths is not None, "segments have lengths or offsets"
        ends = lengths.cumsum(axis)
        starts = ends - lengths
    else:
        n = offsets.shape[axis] - 1
        starts, ends = offsets.narrow(axis, 0, n), offsets.narrow(axis, 1, n)
    places = torch.arange(x.shape[axis], device=x.device)
    mask = (places >= starts.unsqueeze(-1)) & (places < ends.unsqueeze(-1))
    mask = mask.reshape(*mask.shape, *[1] * (x.dim() - 1 - axis))
    return mask, x.unsqueeze(axis)


@decomposes(aten._segment_reduce_backward.default)
def segment_reduce_backward(
    gradient: Tensor, result: Tensor, x: Tensor, reduce: str, *, lengths: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Of equal extremes in a segment each gets its share."""
    mask, wide = _segments(x, lengths, offsets, axis)
    at = axis + 1
    gradient, result = gradient.unsqueeze(at), result.unsqueeze(at)
    if reduce == "sum":
        share = mask.to(x.dtype)
    elif reduce == "mean":
        share = mask / mask.sum(at, keepdim=True).clamp(min=1)
    elif reduce == "prod":
        product = lambda x: segment_reduce(  # noqa: E731
            x, "prod", lengths=lengths, offsets=offsets, axis=axis, initial=initial
        )
        return gradients_by_autograd(product, gradient.squeeze(at), x)[0]
    else:
        is_extreme = mask & ((wide == result) | wide.isnan())
        share = is_extreme / is_extreme.sum(at, keepdim=True).clamp(min=1)
    return torch.where(mask, gradient * share, 0).sum(axis)
