"""Operations that choose elements by number: gathers, scatters, slices at computed positions."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tremula.frontends.popxl.core.table import Indices, Operand, OptionalOperand, operation
from tremula.frontends.shared.kinds import indexing as kinds

PAGE_SECTION = (6, "Indexing")


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
    """A gather from a tensor that a matrix product reads, too."""
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


@operation("Scatter", name="scatter")
def scatter(
    t: Operand,
    indices: Indices,
    values: Operand,
    axis: int = 0,
    available_memory_proportion: float | None = None,  # noqa: ARG001
) -> Tensor:
    """A copy with the values at the indices."""
    return torch.scatter(t, axis, kinds.index_of_each(indices.long(), values, axis), values)


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
    """Elements that are scattered to one index, combined: "sum", "max", "min", "mul" or "none"."""
    if reduction not in kinds.SCATTER_REDUCTIONS:
        known = list(kinds.SCATTER_REDUCTIONS)
        raise ValueError(f"reduction must be one of {known}, got {reduction!r}")
    if axis_size is None and initial_values is None:
        raise ValueError("axis_size or initial_values must say how large the result is")
    if not enable_index_broadcast and indices.shape != data.shape:
        raise ValueError(
            f"without broadcasting, indices are of the shape of the data, {tuple(data.shape)}, got"
            f" {tuple(indices.shape)}"
        )
    return kinds.scatter_reduce(data, indices, initial_values, axis, axis_size or 0, reduction)


# -- slices at computed positions ------------------------------------------------------------------


def _check_index(index: Tensor, axes: Sequence[int]) -> None:
    if index.numel() != len(axes):
        raise ValueError(f"{len(axes)} axes need as many indices, got {index.numel()}")


@operation("DynamicSlice")
def dynamic_slice(
    t: Operand,
    index: Indices,
    axes: Sequence[int],
    sizes: Sequence[int],
    no_overlap: bool,  # noqa: ARG001
) -> Tensor:
    """A part that begins at a computed position."""
    _check_index(index, axes)
    result = kinds.dynamic_slice(t, index, axes, sizes)
    return result.clone() if result is t else result


@operation("DynamicUpdate")
def dynamic_update(
    t: Operand,
    index: Indices,
    t_update: Operand,
    axes: Sequence[int],
    sizes: Sequence[int],
    no_overlap: bool,  # noqa: ARG001
) -> Tensor:
    """A copy with a new part, at a computed position."""
    _check_index(index, axes)
    return kinds.dynamic_update(t, index, t_update, axes, sizes)


@operation("DynamicUpdateInplace", modifies=(0,))
def dynamic_update_(
    t: Operand,
    index: Indices,
    t_update: Operand,
    axes: Sequence[int],
    sizes: Sequence[int],
    no_overlap: bool,  # noqa: ARG001
) -> Tensor:
    """Write a part at a computed position."""
    _check_index(index, axes)
    return t.copy_(kinds.dynamic_update(t, index, t_update, axes, sizes))


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
