"""Operations that choose elements by number: gathers, scatters, slices at computed positions."""

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from tremula.frontends.popxl.core.host_data import array_of
from tremula.frontends.popxl.core.table import Indices, Operand, OptionalOperand, operation
from tremula.frontends.popxl.core.tensor import Constant, Variable
from tremula.frontends.popxl.core.tensor import Tensor as PopxlTensor
from tremula.frontends.popxl.dtypes import uint32
from tremula.frontends.shared.kinds import indexing as kinds

PAGE_SECTION = (6, "Indexing")


def _gathered(t: Tensor, indices: Tensor, axis: int, zero_OOR: bool) -> Tensor:
    """Slices of a dimension; those out of range are zero if requested, else the nearest."""
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
    available_memory_proportion: float | None = None,  # noqa: ARG001 - read by `choices_of`
    zero_OOR: bool = False,
) -> Tensor:
    """Slices of a dimension by number; with `zero_OOR`, zeros for numbers out of range."""
    return _gathered(t, indices, axis, zero_OOR)


@operation("PopartTiedGather", class_name="TiedGather")
def tied_gather(
    t: Operand,
    indices: Indices,
    axis: int = 0,
    available_memory_proportion: float | None = None,  # noqa: ARG001 - read by `choices_of`
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
    available_memory_proportion: float | None = None,  # noqa: ARG001 - read by `choices_of`
    zero_OOR: bool = False,
) -> Tensor:
    """A gather in each group: the first dimension of tensor and indices counts the groups."""
    _check_groups(t, indices, group_size)
    inner = _axis_in_group(t, axis)
    parts = [_gathered(t[g], indices[g], inner, zero_OOR) for g in range(group_size)]
    return torch.stack(parts)


def _check_groups(t: Tensor, indices: Tensor, group_size: int) -> None:
    if t.shape[0] != group_size or indices.shape[0] != group_size:
        raise ValueError(
            f"the first dimension must count {group_size} groups, got {tuple(t.shape)} and"
            f" indices {tuple(indices.shape)}"
        )


def _axis_in_group(t: Tensor, axis: int) -> int:
    """An axis of the tensors of a group; the first axis counts groups, and stands for the next."""
    return max(axis % t.dim() - 1, 0)


# -- scatters --------------------------------------------------------------------------------------


@operation("Scatter", name="scatter", same=("t", "values"))
def scatter(
    t: Operand,
    indices: Indices,
    values: Operand,
    axis: int = 0,
    available_memory_proportion: float | None = None,  # noqa: ARG001 - read by `choices_of`
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
    available_memory_proportion: float | None = None,  # noqa: ARG001 - read by `choices_of`
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


@operation("ScatterReduce", name="grouped_scatter_reduce")
def grouped_scatter_reduce(
    data: Operand,
    indices: Indices,
    reduction: str,
    initial_values: OptionalOperand = None,
    axis: int = 0,
    axis_size: int | None = None,
    group_size: int = 1,
    enable_index_broadcast: bool = True,
    available_memory_proportion: float | None = None,  # noqa: ARG001 - read by `choices_of`
) -> Tensor:
    """A scatter in each group: the first dimension of data and indices counts the groups."""
    _check_groups(data, indices, group_size)
    inner, compute = _axis_in_group(data, axis), scatter_reduce.row.compute  # type: ignore[attr-defined]
    parts = [
        compute(
            data[g],
            indices[g],
            reduction,
            None if initial_values is None else initial_values[g],
            inner,
            axis_size,
            enable_index_broadcast,
        )
        for g in range(group_size)
    ]
    return torch.stack(parts)


# -- slices at computed positions ------------------------------------------------------------------


def _check_index(t: Tensor, index: Tensor, axes: Sequence[int], sizes: Sequence[int]) -> None:
    if len(axes) != len(sizes):
        raise ValueError(f"axes {list(axes)} and sizes {list(sizes)} must have the same length")
    if not kinds.has_rows(t, index, axes, sizes) and index.numel() != len(axes):
        raise ValueError(
            f"{len(axes)} axes need as many indices, or a row of {len(axes) - 1} for each member of"
            f" the first axis, got {tuple(index.shape)}"
        )


def _update(
    t: Tensor, index: Tensor, value: Tensor, axes: Sequence[int], sizes: Sequence[int]
) -> Tensor:
    """A copy of a tensor with a new part, which may be broadcast."""
    _check_index(t, index, axes, sizes)
    shape = list(t.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    if list(value.shape) != shape:
        value = value.broadcast_to(shape)
    return kinds.dynamic_update(t, index, value, list(axes), list(sizes))


@operation("DynamicSlice")
def dynamic_slice(
    t: Operand,
    index: Indices,
    axes: Sequence[int],
    sizes: Sequence[int],
    no_overlap: bool,  # noqa: ARG001
) -> Tensor:
    """A part that begins at a computed position."""
    _check_index(t, index, axes, sizes)
    result = kinds.dynamic_slice(t, index, list(axes), list(sizes))
    return result.clone() if result is t else result


@operation("DynamicUpdate", same=("t", "t_update"))
def dynamic_update(
    t: Operand,
    index: Indices,
    t_update: Operand,
    axes: Sequence[int],
    sizes: Sequence[int],
    no_overlap: bool,  # noqa: ARG001
) -> Tensor:
    """A copy with a new part, at a computed position."""
    return _update(t, index, t_update, axes, sizes)


@operation("DynamicUpdateInplace", modifies=(0,), same=("t", "t_update"))
def dynamic_update_(
    t: Operand,
    index: Indices,
    t_update: Operand,
    axes: Sequence[int],
    sizes: Sequence[int],
    no_overlap: bool,  # noqa: ARG001
) -> Tensor:
    """Write a part at a computed position."""
    return t.copy_(_update(t, index, t_update, axes, sizes))


# -- others ----------------------------------------------------------------------------------------


def _with_number_of_classes(make: Callable) -> Callable:
    """The number of classes is a shape: it is known when the graph is built."""

    @functools.wraps(make)
    def onehot(
        t: PopxlTensor, num_classes: PopxlTensor | int, values: PopxlTensor, axis: int
    ) -> PopxlTensor:
        if isinstance(num_classes, PopxlTensor):
            if not isinstance(num_classes, Constant | Variable) or num_classes.nelms != 1:
                raise ValueError(
                    f"popxl.ops.onehot: num_classes is the size of a dimension, so it must be a"
                    f" constant or variable of one element, got {num_classes!r}"
                )
            num_classes = int(array_of(num_classes.data).reshape(()))
        return make(t, num_classes, values, axis)

    return onehot


@operation("OneHot", class_name="Onehot", around=_with_number_of_classes)
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
    available_memory_proportion: float | None = None,  # noqa: ARG001 - read by `choices_of`
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements, and where they are."""
    values, indices = torch.topk(t, k, axis, largest, sorted)
    return values, indices.to(torch.int32)


def check_increment(levels: Sequence[float]) -> None:
    """Raise unless levels of a histogram increase."""
    if any(b <= a for a, b in pairwise(levels)):
        raise ValueError(f"The levels of a histogram must increase, got {list(levels)}")


@operation("Histogram", types=lambda _inputs, _attributes: uint32)
def histogram(t: Operand, levels: Sequence[float], absolute_of_input: bool) -> Tensor:
    """How many elements lie below, between and above the levels."""
    check_increment(levels)
    edges = torch.tensor(list(levels), dtype=torch.float32, device=t.device)
    values = (t.abs() if absolute_of_input else t).reshape(-1).float()
    place = (values[:, None] >= edges[None, :]).sum(1)
    counts = (place[:, None] == torch.arange(len(levels) + 1, device=t.device)[None, :]).sum(0)
    return counts.to(uint32.carrier)
