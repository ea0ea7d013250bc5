"""Operations that reduce dimensions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tremula.frontends.popxl.core.table import Operand, operation
from tremula.frontends.shared.kinds import reductions as kinds

PAGE_SECTION = (3, "Reductions")

Axes = Sequence[int] | int | None


def _reduced(reduce: kinds.Reduce, t: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    """A reduction of some dimensions; of none, each element is reduced alone."""
    axes = _numbers(t, axis)
    return reduce(t, axes, keepdims) if axes else reduce(t.unsqueeze(-1), [t.dim()], False)


def _numbers(t: Tensor, axis: Axes) -> list[int]:
    """Axes as numbers from 0 on; None for all."""
    if axis is None:
        return list(range(t.dim()))
    axes = [axis] if isinstance(axis, int) else list(axis)
    rank = max(t.dim(), 1)
    for number in axes:
        if not -rank <= number < rank:
            raise IndexError(f"there is no dimension {number} in {tuple(t.shape)}")
    return [number % rank for number in axes]


@operation("ReduceSum", name="sum")
def sum_(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _reduced(kinds.reduce_sum, t, axis, keepdims)


@operation("ReduceMean", name="mean")
def mean(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _reduced(kinds.reduce_mean, t, axis, keepdims)


@operation("ReduceL1", name="l1")
def l1(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of absolute values."""
    return _reduced(kinds.reduce_l1, t, axis, keepdims)


@operation("ReduceL2", name="l2")
def l2(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The root of the sum of squares."""
    return _reduced(kinds.reduce_l2, t, axis, keepdims)


@operation("ReduceSumSquare", name="sumsquare")
def sumsquare(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _reduced(kinds.reduce_sum_square, t, axis, keepdims)


@operation("ReduceLogSum", name="logsum")
def logsum(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum."""
    return _reduced(kinds.reduce_log_sum, t, axis, keepdims)


@operation("ReduceLogSumExp", name="logsumexp")
def logsumexp(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _reduced(kinds.reduce_log_sum_exp, t, axis, keepdims)


@operation("ReduceMax", name="max")
def max_(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _reduced(kinds.reduce_max, t, axis, keepdims)


@operation("ReduceMin", name="min")
def min_(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _reduced(kinds.reduce_min, t, axis, keepdims)


@operation("ReduceProd", name="prod")
def prod(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _reduced(kinds.reduce_prod, t, axis, keepdims)


@operation("ReduceMedian", name="median")
def median(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The middle element; of two, the smaller."""
    axes = _numbers(t, axis)
    return kinds.reduce_median(t, axes, keepdims)[0] if axes else t.clone()


@operation("ArgMax")
def argmax(t: Operand, dim: int = 0, keepdim: bool = False) -> Tensor:
    """Where the largest element of a dimension is."""
    return torch.argmax(t, dim, keepdim).to(torch.int32)


@operation("ArgMin")
def argmin(t: Operand, dim: int = 0, keepdim: bool = False) -> Tensor:
    return torch.argmin(t, dim, keepdim).to(torch.int32)


@operation("CumSum")
def cumsum(t: Operand, dim: int = 0) -> Tensor:
    return torch.cumsum(t, dim, dtype=t.dtype)


@operation("LambSquare")
def lamb_square(t: Operand) -> Tensor:
    """The sum of squares, as a float."""
    return torch.sum(t.float() * t.float())
