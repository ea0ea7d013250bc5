"""Gathering and scattering, and what finds indices."""

import numpy as np
import torch
from torch import Tensor

from tremula.frontends.onnx.context import known
from tremula.frontends.onnx.table import operator


def _wrapped(indices: Tensor, size: int) -> Tensor:
    """Indices from the end as indices from 0."""
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


@operator("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Slices of an axis, by tensors of indices."""
    if not isinstance(x, Tensor):  # strings
        return np.take(x, indices.numpy(), axis)
    axis = axis % x.dim()
    places = _wrapped(indices, x.shape[axis])
    result = x.index_select(axis, places.reshape(-1))
    return result.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@operator("GatherElements", since=11)
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """An element for each index, along an axis."""
    return torch.gather(x, axis, _wrapped(indices, x.shape[axis]))


@operator("GatherND", since=11)
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Slices by index tuples, which are the last axis of the indices."""
    batch = x.shape[:batch_dims]
    n_batch = int(np.prod(batch))
    inner = x.reshape(n_batch, *x.shape[batch_dims:])
    tuples = indices.reshape(n_batch, -1, indices.shape[-1])
    n_index = indices.shape[-1]
    columns = [_wrapped(tuples[..., i], inner.shape[1 + i]) for i in range(n_index)]
    rows = torch.arange(n_batch, device=x.device).unsqueeze(1).expand(tuples.shape[:2])
    result = inner[(rows, *columns)]
    return result.reshape((*indices.shape[:-1], *x.shape[batch_dims + n_index :]))


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("Scatter", since=9, until=10)
def scatter(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    """As ScatterElements."""
    return scatter_elements(x, indices, updates, axis=axis)


@operator("Scatter", since=11)
def scatter_since_11(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    """As ScatterElements."""
    return scatter_elements(x, indices, updates, axis=axis)


@operator("ScatterElements", since=11)
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """Elements replaced, or joined by a reduction, at an index for each."""
    places = _wrapped(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _REDUCE[reduction])


@operator("ScatterND", since=11)
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """Slices replaced, or joined by a reduction, at index tuples."""
    n_index = indices.shape[-1]
    rows, row_size = x.shape[:n_index], int(np.prod(x.shape[n_index:]))
    flat = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=indices.device)
    for axis in range(n_index):
        flat = flat * rows[axis] + _wrapped(indices[..., axis], rows[axis])
    places = flat.reshape(-1, 1).expand(-1, row_size)
    table = x.reshape(int(np.prod(rows)), row_size)
    values = updates.reshape(-1, row_size)
    if reduction == "none":
        result = table.scatter(0, places, values)
    else:
        result = table.scatter_reduce(0, places, values, _REDUCE[reduction])
    return result.reshape(x.shape)


@operator("TensorScatter", since=24)
def tensor_scatter(
    past: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """A cache with new elements written at a place of each batch."""
    axis, n = axis % past.dim(), update.shape[axis]
    steps = torch.arange(n, device=past.device)
    if write_indices is None:
        places = steps.unsqueeze(0).expand(past.shape[0], n)
    else:
        places = write_indices.unsqueeze(1) + steps
    if mode == "circular":
        places = places % past.shape[axis]
    shape = [past.shape[0], *[1] * (past.dim() - 1)]
    shape[axis] = n
    return past.scatter(axis, places.reshape(shape).expand(update.shape), update)


@operator("OneHot", since=9, static=("depth",))
def one_hot(indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    """The second value at each index, along a new axis, and the first elsewhere."""
    n = int(depth.reshape(-1)[0])
    places = _wrapped(indices.to(torch.int64), n)
    axis = axis % (indices.dim() + 1)
    shape = [1] * (indices.dim() + 1)
    shape[axis] = n
    classes = torch.arange(n, device=indices.device).reshape(shape)
    return torch.where(places.unsqueeze(axis) == classes, values[1], values[0])


@operator("NonZero", since=9, static=("x",))
def nonzero(x: Tensor) -> Tensor:
    """Places of elements that are not 0; how many depends on values."""
    return torch.nonzero(x).t()


@operator("Compress", since=9, static=("condition",))
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """Slices of an axis where a condition holds."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    places = known(np.flatnonzero(condition.tolist()[: x.shape[axis]]))
    return x.index_select(axis, places.to(x.device))


@operator("Unique", since=11, static=("x",))
def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, ...]:
    """Distinct elements or slices, first places, places in the result, and counts."""
    array = (x.float() if x.dtype is torch.bfloat16 else x).numpy()
    result = np.unique(array, True, True, True, axis=axis)
    values, first, inverse, counts = result
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return tuple(known(a) for a in (values, first, inverse, counts))


@operator("ReverseSequence", since=10)
def reverse_sequence(
    x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    """The beginning of each sequence reversed, as far as its length says."""
    moved = x.movedim((batch_axis, time_axis), (0, 1))
    steps = torch.arange(moved.shape[1], device=x.device)
    ends = lengths.unsqueeze(1)
    places = torch.where(steps < ends, ends - 1 - steps, steps)
    index = places.reshape(*places.shape, *[1] * (x.dim() - 2)).expand(moved.shape)
    return torch.gather(moved, 1, index).movedim((0, 1), (batch_axis, time_axis))
