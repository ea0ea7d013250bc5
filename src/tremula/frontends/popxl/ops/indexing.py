"""Operations that choose elements by number: gathers, scatters, slices at computed places."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tremula.frontends.popxl.core.table import Indices, Operand, OptionalOperand, operation


def _gathered(t: Tensor, indices: Tensor, axis: int, zero_OOR: bool) -> Tensor:
    """Slices of a dimension; those out of range are zero if asked for, else the nearest."""
    axis = axis % t.dim()
    n = t.shape[axis]
    flat = indices.reshape(-1).long()
    result = torch.index_select(t, axis, flat.clamp(0, n - 1))
    if zero_OOR:
        is_inside = ((flat >= 0) & (flat < n)).to(t.dtype)
        result = result * is_inside.reshape([-1 if d == axis else 1 for d in range(t.dim())])
    return result.reshape([*t.shape[:axis], *indices.shape, *t.shape[axis + 1 :]])


@operation("Gather")
def gather(
    t: Operand,
    indices: Indices,
    axis: int = 0,
    available_memory_proportion: float | None = None,  # noqa: ARG001
    zero_OOR: bool = False,
) -> Tensor:
    """Slices of a dimension by number; with `zero_OOR`, zeros for numbers out of range."""
    return _gathered(t, indices, axis, zero_OOR)


@operation("TiedGather")
def tied_gather(
    t: Operand,
    indices: Indices,
    axis: int = 0,
    available_memory_proportion: float | None = None,  # noqa: ARG001
    zero_OOR: bool = False,
) -> Tensor:
    """The same, from a tensor that a matrix product reads, too."""
    return _gathered(t, indices, axis, zero_OOR)


@operation("Gather", name="groupedgather")
def groupedgather(
    t: Operand,
    indices: Indices,
    axis: int = 0,
    group_size: int = 1,
    available_memory_proportion: float | None = None,  # noqa: ARG001
    zero_OOR: bool = False,
) -> Tensor:
    """A gather in each group: the first dimension of tensor and indices counts the groups."""
    if t.shape[0] != group_size or indices.shape[0] != group_size:
        raise ValueError(
            f"the first dimension must count {group_size} groups, got {tuple(t.shape)} and"
            f" indices {tuple(indices.shape)}"
        )
    inner = axis % t.dim() - 1 if axis % t.dim() else 0
    parts = [_gathered(t[g], indices[g], inner, zero_OOR) for g in range(group_size)]
    return torch.stack(parts)


# -- scatters --------------------------------------------------------------------------------------

_REDUCES = {"sum": "sum", "max": "amax", "min": "amin", "mul": "prod"}


@operation("Scatter", name="scatter")
def scatter(
    t: Operand,
    indices: Indices,
    values: Operand,
    axis: int = 0,
    available_memory_proportion: float | None = None,  # noqa: ARG001
) -> Tensor:
    """A copy in which the values stand where the indices say."""
    return torch.scatter(t, axis, _broadcast_index(indices, values, axis), values)


def _broadcast_index(indices: Tensor, values: Tensor, axis: int) -> Tensor:
    index = indices.long()
    if index.dim() == 1 and values.dim() > 1:
        index = index.reshape([-1 if d == axis % values.dim() else 1 for d in range(values.dim())])
    return index.expand(values.shape)


@operation("ScatterReduce")
def scatter_reduce(
    data: Operand,
    indices: Indices,
    reduction: str,
    initial_values: OptionalOperand = None,
    axis: int = 0,
    axis_size: int | None = None,
    enable_index_broadcast: bool = True,
    available_memory_proportion: float | None = None,  # noqa: ARG001
) -> Tensor:
    """Elements that are scattered to one place, combined: "sum", "max", "min", "mul" or "none"."""
    if reduction not in {*_REDUCES, "none"}:
        raise ValueError(f"reduction must be one of {[*_REDUCES, 'none']}, got {reduction!r}")
    if axis_size is None and initial_values is None:
        raise ValueError("axis_size or initial_values must say how large the result is")
    axis = axis % data.dim()
    index = _broadcast_index(indices, data, axis) if enable_index_broadcast else indices.long()
    shape = list(data.shape)
    if initial_values is not None:
        start, has_start = initial_values.clone(), True
    else:
        shape[axis] = int(axis_size or 0)
        start, has_start = torch.zeros(shape, dtype=data.dtype, device=data.device), False
    if reduction == "none":
        return torch.scatter(start, axis, index, data)
    return torch.scatter_reduce(
        start, axis, index, data, _REDUCES[reduction], include_self=has_start
    )


# -- slices at computed places ---------------------------------------------------------------------


def _starts(index: Tensor, axes: Sequence[int]) -> list[Tensor]:
    flat = index.reshape(-1).long()
    if flat.numel() != len(axes):
        raise ValueError(f"{len(axes)} axes need as many indices, got {flat.numel()}")
    return [flat[i] for i in range(len(axes))]


def _range(start: Tensor, size: int, whole: int) -> Tensor:
    """Numbers from a place on, inside the dimension."""
    return torch.arange(size, device=start.device) + start.clamp(0, whole - size)


@operation("DynamicSlice")
def dynamic_slice(
    t: Operand,
    index: Indices,
    axes: Sequence[int],
    sizes: Sequence[int],
    no_overlap: bool,  # noqa: ARG001
) -> Tensor:
    """A part that begins at a computed place."""
    result = t
    for start, axis, size in zip(_starts(index, axes), axes, sizes, strict=True):
        result = torch.index_select(result, axis, _range(start, size, t.shape[axis]))
    return result.clone() if result is t else result


def _updated(
    t: Tensor, index: Tensor, update: Tensor, axes: Sequence[int], sizes: Sequence[int]
) -> Tensor:
    starts = _starts(index, axes)
    if len(axes) == 1:
        place = _range(starts[0], sizes[0], t.shape[axes[0]])
        return torch.index_copy(t, axes[0], place, update)
    grid: list[Any] = [torch.arange(n, device=t.device) for n in t.shape]
    for start, axis, size in zip(starts, axes, sizes, strict=True):
        grid[axis] = _range(start, size, t.shape[axis])
    return torch.index_put(t, torch.meshgrid(*grid, indexing="ij"), update)


@operation("DynamicUpdate")
def dynamic_update(
    t: Operand,
    index: Indices,
    t_update: Operand,
    axes: Sequence[int],
    sizes: Sequence[int],
    no_overlap: bool,  # noqa: ARG001
) -> Tensor:
    """A copy with a new part, at a computed place."""
    return _updated(t, index, t_update, axes, sizes)


@operation("DynamicUpdateInplace", modifies=(0,))
def dynamic_update_(
    t: Operand,
    index: Indices,
    t_update: Operand,
    axes: Sequence[int],
    sizes: Sequence[int],
    no_overlap: bool,  # noqa: ARG001
) -> Tensor:
    """Write a part at a computed place."""
    return t.copy_(_updated(t, index, t_update, axes, sizes))


# -- others ----------------------------------------------------------------------------------------


@operation("Onehot")
def onehot(t: Indices, num_classes: int, values: Operand, axis: int) -> Tensor:
    """The second of two values where a class is the one named, the first elsewhere."""
    chosen = functional.one_hot(t.long() % num_classes, num_classes).bool()
    chosen = torch.movedim(chosen, -1, axis)
    return torch.where(chosen, values[1], values[0])


@operation("TopK")
def topk(
    t: Operand,
    k: int,
    axis: int,
    largest: bool,
    sorted: bool,
    available_memory_proportion: float | None = None,  # noqa: ARG001
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements, and where they are."""
    values, indices = torch.topk(t, k, axis, largest, sorted)
    return values, indices.to(torch.int32)


@operation("Histogram")
def histogram(t: Operand, levels: Sequence[float], absolute_of_input: bool) -> Tensor:
    """How many elements lie below, between and above the levels."""
    edges = torch.tensor(list(levels), dtype=torch.float32, device=t.device)
    values = (t.abs() if absolute_of_input else t).reshape(-1).float()
    place = (values[:, None] >= edges[None, :]).sum(1)
    counts = (place[:, None] == torch.arange(len(levels) + 1, device=t.device)[None, :]).sum(0)
    return counts.to(torch.int64)
