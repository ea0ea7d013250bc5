"""Reductions over axes, and where the largest and smallest elements are."""

from collections.abc import Callable

import torch
from torch import Tensor

from tremula.frontends.onnx.operators.shape import axes_of
from tremula.frontends.onnx.table import operator

Reduce = Callable[[Tensor, list[int], bool], Tensor]


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return x.sum(axes, keepdim=keep, dtype=x.dtype)


def _extreme(x: Tensor, axes: list[int], keep: bool, *, is_max: bool) -> Tensor:
    if x.dtype is torch.bool:
        return _extreme(x.to(torch.uint8), axes, keep, is_max=is_max).to(torch.bool)
    if any(x.shape[axis] == 0 for axis in axes):
        return _of_nothing(x, axes, keep, is_max=is_max)
    return (torch.amax if is_max else torch.amin)(x, axes, keepdim=keep)


def _of_nothing(x: Tensor, axes: list[int], keep: bool, *, is_max: bool) -> Tensor:
    if x.is_floating_point():
        value = -torch.inf if is_max else torch.inf
    else:
        facts = torch.iinfo(x.dtype)
        value = facts.min if is_max else facts.max
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    full = torch.full(shape, value, dtype=x.dtype, device=x.device)
    return full if keep else full.squeeze(axes)


def _max(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _extreme(x, axes, keep, is_max=True)


def _min(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _extreme(x, axes, keep, is_max=False)


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if x.is_floating_point():
        return x.mean(axes, keepdim=keep)
    return x.to(torch.float64).mean(axes, keepdim=keep).to(x.dtype)


def _prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep, dtype=x.dtype)
    return x


def _l1(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(x.abs(), axes, keep)


def _l2(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(x * x, axes, keep).sqrt().to(x.dtype)


def _sum_square(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(x * x, axes, keep)


def _log_sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(x, axes, keep).log().to(x.dtype)


def _log_sum_exp(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    wide = x if x.is_floating_point() else x.to(torch.float64)
    return torch.logsumexp(wide, axes, keepdim=keep).to(x.dtype)


_REDUCTIONS: dict[str, tuple[Reduce, str, int]] = {
    # Since this version of the operator set, axes are an operand.
    "ReduceSum": (_sum, "The sum.", 13),
    "ReduceMax": (_max, "The largest.", 18),
    "ReduceMin": (_min, "The smallest.", 18),
    "ReduceMean": (_mean, "The mean.", 18),
    "ReduceProd": (_prod, "The product.", 18),
    "ReduceL1": (_l1, "The sum of sizes.", 18),
    "ReduceL2": (_l2, "The root of the sum of squares.", 18),
    "ReduceSumSquare": (_sum_square, "The sum of squares.", 18),
    "ReduceLogSum": (_log_sum, "The logarithm of the sum.", 18),
    "ReduceLogSumExp": (_log_sum_exp, "The logarithm of the sum of exponentials.", 18),
}


def _enter(name: str, reduce: Reduce, about: str, operand_since: int) -> None:
    @operator(name, until=operand_since - 1)
    def with_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
        return _reduced(x, axes_of(axes, x.dim()))(keepdims)

    @operator(name, since=operand_since, static=("axes",))
    def with_operand(
        x: Tensor,
        axes: Tensor | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        has_axes = axes is not None and axes.numel()
        if not has_axes and noop_with_empty_axes:
            return reduce(x.unsqueeze(0), [0], False)
        return _reduced(x, axes_of(axes if has_axes else None, x.dim()))(keepdims)

    def _reduced(x: Tensor, axes: list[int]) -> Callable[[int], Tensor]:
        if not axes:  # of a scalar
            return lambda _keep: reduce(x.unsqueeze(0), [0], False)
        return lambda keep: reduce(x, axes, bool(keep))

    with_attribute.__doc__ = f"{about} Axes are an attribute."
    with_operand.__doc__ = f"{about} Axes are an operand."


for _name, (_reduce, _about, _since) in _REDUCTIONS.items():
    _enter(_name, _reduce, _about, _since)


@operator("ArgMax")
def argmax(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """The place of the largest element, the first or the last of equal ones."""
    return _place(torch.argmax, x, axis, keepdims, select_last_index)


@operator("ArgMin")
def argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """The place of the smallest element, the first or the last of equal ones."""
    return _place(torch.argmin, x, axis, keepdims, select_last_index)


def _place(function: Callable, x: Tensor, axis: int, keepdims: int, last: int) -> Tensor:
    if last:
        result = x.shape[axis] - 1 - function(x.flip(axis), axis, keepdim=bool(keepdims))
    else:
        result = function(x, axis, keepdim=bool(keepdims))
    return result.to(torch.int64)


@operator("TopK", until=9)
def top_k_before_10(x: Tensor, *, axis: int = -1, k: int) -> tuple[Tensor, Tensor]:
    """The k largest, in order, and their places; k is an attribute."""
    return _top(x, k, axis, largest=True)


@operator("TopK", since=10, static=("k",))
def top_k(
    x: Tensor,
    k: Tensor,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,  # noqa: ARG001 - they always are
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest, in order, and their places."""
    return _top(x, int(k), axis, largest=bool(largest))


def _top(x: Tensor, k: int, axis: int, *, largest: bool) -> tuple[Tensor, Tensor]:
    """Of equal elements the first come first, which torch.topk does not promise."""
    values, places = torch.sort(x, dim=axis, descending=largest, stable=True)
    return values.narrow(axis, 0, k), places.narrow(axis, 0, k)
