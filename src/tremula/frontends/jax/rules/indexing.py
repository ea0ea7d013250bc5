"""gather and the scatters, with all of XLA's dimension numbers.

Every form becomes an index into the flat array: the sum over its dimensions of (start + offset) ×
stride. The common case, whole rows by their numbers, is a separate index_select or index_add.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jax.lax import GatherDimensionNumbers
from torch import Tensor

from tremula.frontends.jax.carriers import Value, by_words, is_wrapped
from tremula.frontends.jax.table import Equation, rule

_FILL, _CLIP = "FILL_OR_DROP", "CLIP"


@rule("gather")
def gather(eqn: Equation, x: Value, indices: Tensor) -> Value:
    return by_words(lambda x: _gathered(eqn, x, indices), x)


def _gathered(eqn: Equation, x: Tensor, indices: Tensor) -> Tensor:
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    mode = eqn.params["mode"].name
    shape = tuple(eqn.in_avals[0].shape)
    starts = _starts(indices, numbers.start_index_map, shape, sizes)
    inside = None
    if mode == _FILL:
        inside = _all_inside(starts, shape, sizes)
    starts = {d: torch.clamp(s, 0, shape[d] - sizes[d]) for d, s in starts.items()}
    n_batch = indices.dim() - 1
    rows = _row_gather(x, numbers, sizes, starts, n_batch, len(eqn.shape))
    if rows is not None:
        taken = rows
    else:
        hidden = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
        windows = [d for d in range(len(shape)) if d not in hidden]
        place = _flat_place(
            shape, starts, {d: sizes[d] for d in windows}, numbers.offset_dims,
            _batching(numbers.operand_batching_dims, numbers.start_indices_batching_dims),
            tuple(indices.shape[:-1]), eqn.shape,
        )  # fmt: skip
        taken = x.reshape(-1)[place]
    if inside is None:
        return taken
    seen = _spread(inside, numbers.offset_dims, len(eqn.shape)).expand(eqn.shape)
    return torch.where(seen, taken, _fill_value(eqn, taken))


def _fill_value(eqn: Equation, taken: Tensor) -> Tensor:
    value = eqn.params["fill_value"]
    dtype = np.dtype(eqn.dtype)
    if value is None:
        if np.issubdtype(dtype, np.inexact):
            value = float("nan")
        elif dtype.kind == "b":
            value = True
        elif is_wrapped(dtype):
            value = -1
        else:
            signed = np.issubdtype(dtype, np.signedinteger)
            value = int(np.iinfo(dtype).min if signed else np.iinfo(dtype).max)
    return torch.full_like(taken, value)


def _starts(
    indices: Tensor, dims: Sequence[int], shape: Sequence[int], sizes: Sequence[int]
) -> dict[int, Tensor]:
    """For each indexed dimension where slices begin; a dimension of one element needs no index."""
    wide = indices if indices.dtype == torch.int64 else indices.to(torch.int32)
    return {d: wide[..., i] for i, d in enumerate(dims) if shape[d] != sizes[d] or shape[d] > 1}


def _all_inside(
    starts: dict[int, Tensor], shape: Sequence[int], sizes: Sequence[int]
) -> Tensor | None:
    inside = None
    for d, start in starts.items():
        here = (start >= 0) & (start <= shape[d] - sizes[d])
        inside = here if inside is None else inside & here
    return inside


def _row_gather(
    x: Tensor,
    numbers: GatherDimensionNumbers,
    sizes: Sequence[int],
    starts: dict,
    n_batch: int,
    rank: int,
) -> Tensor | None:
    """Whole rows of one dimension, the others as they are."""
    if len(starts) != 1 or numbers.operand_batching_dims:
        return None
    ((dim, start),) = starts.items()
    if sizes[dim] != 1 or any(sizes[d] != x.shape[d] for d in range(x.dim()) if d != dim):
        return None
    ones = [d for d in numbers.collapsed_slice_dims if d != dim]
    rows = x.index_select(dim, start.reshape(-1).to(torch.int32))
    rows = rows.movedim(dim, 0)
    rows = rows.reshape([*start.shape, *rows.shape[1:]])
    windows = [d for d in range(x.dim()) if d != dim]
    saved = [i for i, d in enumerate(windows) if d not in ones]
    if dim not in numbers.collapsed_slice_dims:
        rows = rows.unsqueeze(n_batch + sum(d < dim for d in windows))
        saved = list(range(x.dim() - len(ones)))
    rows = rows.reshape([*start.shape, *(rows.shape[n_batch + i] for i in saved)])
    order = _output_order(numbers.offset_dims, rank)
    return rows.permute(order)


def _output_order(offset_dims: Sequence[int], rank: int) -> list[int]:
    """Dimensions of (batch…, window…) in the order of the result."""
    n_batch = rank - len(offset_dims)
    batch, window = iter(range(n_batch)), iter(range(n_batch, rank))
    return [next(window) if d in offset_dims else next(batch) for d in range(rank)]


def _spread(x: Tensor, window_dims: Sequence[int], rank: int) -> Tensor:
    """A value of every slice beside all of its elements."""
    sizes = iter(x.shape)
    return x.reshape([1 if d in window_dims else next(sizes) for d in range(rank)])


def _batching(operand: Sequence[int], indices: Sequence[int]) -> dict[int, int]:
    return dict(zip(operand, indices, strict=True))


def _flat_place(
    shape: Sequence[int],
    starts: dict[int, Tensor],
    windows: dict[int, int],
    window_dims: Sequence[int],
    batching: dict[int, int],
    batch_shape: Sequence[int],
    out_shape: Sequence[int],
) -> Tensor:
    """The flat place in the array of each element of the slices."""
    rank = len(out_shape)
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    place: Tensor | int = 0
    for d, start in starts.items():
        place = place + _spread(start, window_dims, rank) * strides[d]
    for d, axis in batching.items():
        count = torch.arange(shape[d], dtype=torch.int32)
        own = count.reshape([-1 if i == axis else 1 for i in range(len(batch_shape))])
        place = place + _spread(own, window_dims, rank) * strides[d]
    for (d, size), axis in zip(windows.items(), window_dims, strict=True):
        offset = torch.arange(size, dtype=torch.int32) * strides[d]
        place = place + offset.reshape([-1 if i == axis else 1 for i in range(rank)])
    if isinstance(place, int):
        place = torch.zeros([1] * rank, dtype=torch.int32)
    return place.expand(out_shape)


# -- scatters --------------------------------------------------------------------------------------

_REDUCTIONS = {"scatter-mul": "prod", "scatter-min": "amin", "scatter-max": "amax"}


@rule("scatter")
def scatter(eqn: Equation, x: Value, indices: Tensor, updates: Value) -> Value:
    def put(flat: Tensor, place: Tensor, updates: Tensor) -> Tensor:
        return flat.scatter(0, place.to(torch.int64), updates)

    return by_words(lambda x, u: _scattered(eqn, x, indices, u, put), x, updates)


@rule("scatter-add", "scatter_add")
def scatter_add(eqn: Equation, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    def add(flat: Tensor, place: Tensor, updates: Tensor) -> Tensor:
        return flat.index_add(0, place, updates)

    return _scattered(eqn, x, indices, updates, add)


@rule("scatter-sub", "scatter_sub")
def scatter_sub(eqn: Equation, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return scatter_add(eqn, x, indices, -updates)


@rule("scatter-mul", "scatter-min", "scatter-max", "scatter_mul", "scatter_min", "scatter_max")
def scatter_reduce(eqn: Equation, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    kind = _REDUCTIONS[eqn.name.replace("_", "-")]

    def reduce(flat: Tensor, place: Tensor, updates: Tensor) -> Tensor:
        return flat.scatter_reduce(0, place.to(torch.int64), updates, kind)

    return _scattered(eqn, x, indices, updates, reduce)


def _scattered(eqn: Equation, x: Tensor, indices: Tensor, updates: Tensor, put: Callable) -> Tensor:
    """Updates outside the array go to one more element behind it, which is cut off again."""
    numbers, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
    shape = tuple(eqn.in_avals[0].shape)
    hidden = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = [d for d in range(len(shape)) if d not in hidden]
    sizes = [1] * len(shape)
    for d, axis in zip(windows, numbers.update_window_dims, strict=True):
        sizes[d] = updates.shape[axis]
    starts = _starts(indices, numbers.scatter_dims_to_operand_dims, shape, sizes)
    inside = None
    if mode is not None and mode.name == _CLIP:
        starts = {d: torch.clamp(s, 0, shape[d] - sizes[d]) for d, s in starts.items()}
    elif mode is None or mode.name == _FILL:
        inside = _all_inside(starts, shape, sizes)
    place = _flat_place(
        shape, starts, {d: sizes[d] for d in windows}, numbers.update_window_dims,
        _batching(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims),
        tuple(indices.shape[:-1]), tuple(updates.shape),
    )  # fmt: skip
    n = math.prod(shape)
    flat = x.reshape(-1)
    if inside is None:
        return put(flat, place.reshape(-1), updates.reshape(-1)).reshape(shape)
    seen = _spread(inside, numbers.update_window_dims, updates.dim()).expand(updates.shape)
    place = torch.where(seen, place, torch.full_like(place, n))
    flat = torch.cat([flat, flat.new_zeros(1)])
    return put(flat, place.reshape(-1), updates.reshape(-1))[:n].reshape(shape)
