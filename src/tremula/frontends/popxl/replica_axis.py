"""Collectives as algebra: values of all replicas are one tensor, whose first axis counts replicas.

Replicas of a grouping with stride s and groups of n are the axis [outer, n, s], flattened: reducing
is a sum over the middle, gathering moves it, scattering cuts by it.
"""

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import pad

from tremula.frontends.popxl.replica_grouping import ReplicaGrouping

REDUCTIONS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "add": lambda parts: reduce(torch.add, parts),
    "mean": lambda parts: reduce(torch.add, parts) / len(parts),
    "mul": lambda parts: reduce(torch.mul, parts),
    "min": lambda parts: reduce(torch.minimum, parts),
    "max": lambda parts: reduce(torch.maximum, parts),
    "and": lambda parts: reduce(torch.logical_and, parts),
    "or": lambda parts: reduce(torch.logical_or, parts),
    "square_add": lambda parts: reduce(torch.add, [p * p for p in parts]),
}


def all_reduced(x: Tensor, group: ReplicaGrouping, name: str) -> Tensor:
    """For each replica, the values of its group combined."""
    return _to_members(_reduced(x, group, name), group.group_size)


def all_gathered(x: Tensor, group: ReplicaGrouping, axis: int, *, new_axis: bool) -> Tensor:
    """For each replica, the values of its group along an axis of a replica's tensor, or a new."""
    apart = _apart(x, group).movedim(1, axis + 2)  # [outer, stride, …, n, …]
    return _to_members(apart if new_axis else apart.flatten(axis + 2, axis + 3), group.group_size)


def gathered_whole(x: Tensor, group: ReplicaGrouping, shape: tuple[int, ...]) -> Tensor:
    """For each replica, the tensor whose flat parts its group has."""
    flat = _apart(x, group).movedim(1, 2).flatten(2)
    n = torch.Size(shape).numel()
    return _to_members(flat[:, :, :n].unflatten(2, shape or (1,)), group.group_size).reshape(
        (len(x), *shape)
    )


def reduce_scattered(x: Tensor, group: ReplicaGrouping, name: str) -> Tensor:
    """For each replica, its part of the flat, combined values of its group."""
    parts = _cut(_reduced(x, group, name).flatten(2), group.group_size)  # [outer, stride, n, part]
    return _closed(parts.movedim(2, 1))


def own_shards(x: Tensor, group: ReplicaGrouping) -> Tensor:
    """For each replica, its part of its flat tensor."""
    parts = _cut(_apart(x.flatten(1), group), group.group_size)  # [outer, n, stride, n, part]
    return _closed(_own(parts, 3))


def own_slices(x: Tensor, group: ReplicaGrouping, axis: int) -> Tensor:
    """For each replica, its part of its tensor along an axis."""
    apart = _apart(x, group)
    place = axis + 3
    return _closed(_own(apart.unflatten(place, (group.group_size, -1)), place))


def _apart(x: Tensor, group: ReplicaGrouping) -> Tensor:
    return x.unflatten(0, (-1, group.group_size, group.stride))


def _reduced(x: Tensor, group: ReplicaGrouping, name: str) -> Tensor:
    """[outer, stride, …]: one for each group, always summed in the same order."""
    apart = _apart(x, group)
    parts = [apart[:, i] for i in range(group.group_size)]
    return REDUCTIONS[name](parts).to(x.dtype)


def _to_members(by_group: Tensor, n: int) -> Tensor:
    """A copy of each group's tensor for each of its members."""
    return _closed(by_group[:, None].expand(-1, n, *by_group.shape[1:]))


def _closed(apart: Tensor) -> Tensor:
    """[outer, n, stride, …] as values of replicas, in new memory."""
    return apart.clone(memory_format=torch.contiguous_format).flatten(0, 2)


def _cut(x: Tensor, n: int) -> Tensor:
    """The last axis in n equal parts, filled up with zeros."""
    length = -(-x.shape[-1] // n)
    return pad(x, (0, n * length - x.shape[-1])).unflatten(-1, (n, length))


def _own(parts: Tensor, axis: int) -> Tensor:
    """Member i's part i: parts are along `axis`, members along axis 1."""
    return torch.diagonal(parts, dim1=1, dim2=axis).movedim(-1, 1)
