"""Kinds that choose elements by index: scatters, and slices at computed positions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tremula.ir.ops import composite  # noqa: F401 - registers tremula::dynamic_slice

SCATTER_REDUCTIONS = {"sum": "sum", "max": "amax", "min": "amin", "mul": "prod", "none": "none"}


def scatter_reduce(
    source: Tensor,
    index: Tensor,
    initial: Tensor | None,
    axis: int,
    axis_size: int,
    reduction: str,
    *,
    broadcasts: bool = True,
) -> Tensor:
    """Elements of one index combined, on top of initial values, else of nothing.

    An index that has fewer dimensions than the source counts for all its elements. An index of the
    same rank that is smaller is expanded, or, without `broadcasts`, covers a part of the source, as
    in `torch.scatter`.
    """
    axis %= source.dim()
    base = initial
    if base is None:
        shape = [axis_size if d == axis else n for d, n in enumerate(source.shape)]
        fill = 1 if reduction == "mul" else 0  # what indices that do not occur give
        base = torch.full(shape, fill, dtype=source.dtype, device=source.device)
    source = source if broadcasts else _covered_part(source, index)
    index = index_of_each(index.to(torch.int64), source, axis)
    if reduction == "none":
        return base.scatter(axis, index, source)
    if reduction == "sum":
        return base.scatter_add(axis, index, source)
    how = SCATTER_REDUCTIONS[reduction]
    return base.scatter_reduce(axis, index, source, how, include_self=initial is not None)


def index_of_each(index: Tensor, source: Tensor, axis: int) -> Tensor:
    """An index for every element of the source."""
    if index.dim() == 1 and source.dim() > 1:
        index = index.reshape([-1 if d == axis % source.dim() else 1 for d in range(source.dim())])
    while index.dim() < source.dim():
        index = index.unsqueeze(-1)
    return index.expand(source.shape)


def has_rows(t: Tensor, index: Tensor, axes: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether an index has a row for each member of the first axis, all of which are addressed."""
    if index.dim() != 2 or len(axes) < 2:
        return False
    return tuple(index.shape) == (sizes[0], len(axes) - 1) and t.shape[axes[0]] == sizes[0]


def dynamic_slice(t: Tensor, index: Tensor, axes: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """A part that begins at computed positions; it wraps round the end of a dimension.

    An index `[B, len(axes) - 1]` has a row of positions for each member of the first axis.
    """
    if has_rows(t, index, axes, sizes):
        parts = [
            dynamic_slice(t.narrow(axes[0], b, 1), index[b], axes[1:], sizes[1:])
            for b in range(sizes[0])
        ]
        return torch.cat(parts, axes[0])
    starts = index.reshape(-1)
    for i, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        t = torch.ops.tremula.dynamic_slice(t, starts[i], axis, size)
    return t


def dynamic_update(
    t: Tensor, index: Tensor, value: Tensor, axes: Sequence[int], sizes: Sequence[int]
) -> Tensor:
    """A copy with another value for a part that begins at computed positions.

    An index `[B, len(axes) - 1]` has a row of positions for each member of the first axis.
    """
    if has_rows(t, index, axes, sizes):
        parts = [
            dynamic_update(
                t.narrow(axes[0], b, 1),
                index[b],
                value.narrow(axes[0], b, 1),
                axes[1:],
                sizes[1:],
            )
            for b in range(sizes[0])
        ]
        return torch.cat(parts, axes[0])
    starts = index.reshape(-1)
    if len(axes) > 1:
        part = torch.ops.tremula.dynamic_slice(t, starts[0], axes[0], sizes[0])
        value = dynamic_update(part, starts[1:], value, axes[1:], sizes[1:])
    return torch.ops.tremula.dynamic_update(t, value, starts[0], axes[0])


def sequence_slice(
    source: Tensor,
    into: Tensor,
    counts: Tensor,
    starts: Tensor,
    places: Tensor,
    zeros_unused: bool,
) -> Tensor:
    """`into` with rows of `source`: run i is `counts[i]` rows from `starts[i]` to `places[i]`.

    Counts and positions may be computed: each row of the result looks for the last run it is in.
    """
    rows = torch.arange(into.shape[0], device=into.device).unsqueeze(1)
    counts, starts, places = (t.reshape(1, -1).to(rows.dtype) for t in (counts, starts, places))
    is_inside = (rows >= places) & (rows < places + counts)
    numbers = torch.arange(1, counts.shape[1] + 1, device=into.device)
    last = (is_inside * numbers).amax(1)  # 0: in none
    is_chosen = last.unsqueeze(1) == numbers
    origin = torch.where(is_chosen, rows - places + starts, 0).sum(1)
    moved = source.index_select(0, origin.clamp(0, source.shape[0] - 1))
    is_copied = (last > 0).reshape(-1, *[1] * (into.dim() - 1))
    return torch.where(is_copied, moved, torch.zeros_like(into) if zeros_unused else into)


def _covered_part(source: Tensor, index: Tensor) -> Tensor:
    """The part of a source that an index of the same rank covers."""
    if index.dim() != source.dim() or index.shape == source.shape:
        return source
    for axis, size in enumerate(index.shape):
        source = source.narrow(axis, 0, min(size, source.shape[axis]))
    return source
