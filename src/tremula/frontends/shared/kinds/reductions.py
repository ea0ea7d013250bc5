"""Kinds that reduce dimensions: each takes a tensor, its axes and whether they stay with size 1.

Results have the type of the tensor. Axes are numbers from 0; there is at least one.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Reduce = Callable[[Tensor, Sequence[int], bool], Tensor]


def reduce_sum(t: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The sum."""
    return t.sum(tuple(axes), keepdim=keep, dtype=t.dtype)


def reduce_mean(t: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The mean; of integers, its whole part."""
    if t.is_floating_point() or t.is_complex():
        return t.mean(tuple(axes), keepdim=keep)
    return t.to(torch.float64).mean(tuple(axes), keepdim=keep).to(t.dtype)


def reduce_prod(t: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The product."""
    for axis in sorted(axes, reverse=True):
        t = t.prod(axis, keepdim=keep, dtype=t.dtype)
    return t


def reduce_max(t: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The largest."""
    return _extreme(t, axes, keep, is_max=True)


def reduce_min(t: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The smallest."""
    return _extreme(t, axes, keep, is_max=False)


def _extreme(t: Tensor, axes: Sequence[int], keep: bool, *, is_max: bool) -> Tensor:
    if t.dtype is torch.bool:
        return _extreme(t.to(torch.uint8), axes, keep, is_max=is_max).to(torch.bool)
    if any(t.shape[axis] == 0 for axis in axes):
        return _extreme_of_none(t, axes, keep, is_max=is_max)
    return (torch.amax if is_max else torch.amin)(t, tuple(axes), keepdim=keep)


def _extreme_of_none(t: Tensor, axes: Sequence[int], keep: bool, *, is_max: bool) -> Tensor:
    """Of no elements: the least or the largest value of the type."""
    if t.is_floating_point():
        value = -torch.inf if is_max else torch.inf
    else:
        limits = torch.iinfo(t.dtype)
        value = limits.min if is_max else limits.max
    shape = [1 if axis in axes else size for axis, size in enumerate(t.shape)]
    full = torch.full(shape, value, dtype=t.dtype, device=t.device)
    return full if keep else full.squeeze(tuple(axes))


def reduce_l1(t: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The sum of absolute values."""
    return reduce_sum(t.abs(), axes, keep)


def reduce_l2(t: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The root of the sum of squares."""
    return reduce_sum(t * t, axes, keep).sqrt().to(t.dtype)


def reduce_sum_square(t: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The sum of squares."""
    return reduce_sum(t * t, axes, keep)


def reduce_log_sum(t: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The logarithm of the sum."""
    return reduce_sum(t, axes, keep).log().to(t.dtype)


def reduce_log_sum_exp(t: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The logarithm of the sum of exponentials."""
    wide = t if t.is_floating_point() else t.to(torch.float64)
    return torch.logsumexp(wide, tuple(axes), keepdim=keep).to(t.dtype)


def reduce_median(t: Tensor, axes: Sequence[int], keep: bool) -> tuple[Tensor, Tensor]:
    """The middle element, the smaller one of two; and its index among the elements reduced."""
    chosen = sorted(axes)
    others = [axis for axis in range(t.dim()) if axis not in chosen]
    flat = t.permute(*others, *chosen).reshape(*(t.shape[axis] for axis in others), -1)
    values, indices = torch.sort(flat, dim=-1)
    middle = (flat.shape[-1] - 1) // 2
    sizes = [1 if axis in chosen else size for axis, size in enumerate(t.shape)]
    shape = sizes if keep else [t.shape[axis] for axis in others]
    return values.select(-1, middle).reshape(shape), indices.select(-1, middle).reshape(shape)
