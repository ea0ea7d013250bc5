"""Reductions over axes, and where the largest and smallest elements are."""

from collections.abc import Callable

import torch
from torch import Tensor

from tremula.frontends.onnx.operators.shape import axes_of
from tremula.frontends.onnx.table import operator
from tremula.frontends.shared.kinds import reductions
from tremula.frontends.shared.table import summary

# The version of the operator set since which axes are an operand.
_REDUCTIONS: dict[str, tuple[reductions.Reduce, int]] = {
    "ReduceSum": (reductions.reduce_sum, 13),
    "ReduceMax": (reductions.reduce_max, 18),
    "ReduceMin": (reductions.reduce_min, 18),
    "ReduceMean": (reductions.reduce_mean, 18),
    "ReduceProd": (reductions.reduce_prod, 18),
    "ReduceL1": (reductions.reduce_l1, 18),
    "ReduceL2": (reductions.reduce_l2, 18),
    "ReduceSumSquare": (reductions.reduce_sum_square, 18),
    "ReduceLogSum": (reductions.reduce_log_sum, 18),
    "ReduceLogSumExp": (reductions.reduce_log_sum_exp, 18),
}


def _enter(name: str, reduce: reductions.Reduce, operand_since: int) -> None:
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
        if not axes:  # of a scalar, or an empty list: nothing is reduced
            return lambda _keep: reduce(x.unsqueeze(0), [0], False)
        return lambda keep: reduce(x, axes, bool(keep))

    about = summary(reduce)
    with_attribute.__doc__ = f"{about} Axes are an attribute."
    with_operand.__doc__ = f"{about} Axes are an operand."


for _name, (_reduce, _since) in _REDUCTIONS.items():
    _enter(_name, _reduce, _since)


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
