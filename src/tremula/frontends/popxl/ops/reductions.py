"""Operations that reduce dimensions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tremula.frontends.popxl.core.table import Operand, operation

Axes = Sequence[int] | int | None


def _dims(t: Tensor, axis: Axes) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(t.dim()))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _kept_type(t: Tensor, found: Tensor) -> Tensor:
    """Integers stay as wide as they were."""
    return found.to(t.dtype)


@operation("ReduceSum", name="sum")
def sum_(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _kept_type(t, torch.sum(t, _dims(t, axis), keepdims))


@operation("ReduceMean", name="mean")
def mean(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    dims = _dims(t, axis)
    if t.is_floating_point() or t.is_complex():
        return torch.mean(t, dims, keepdims)
    return _kept_type(t, torch.mean(t.double(), dims, keepdims))


@operation("ReduceL1", name="l1")
def l1(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of absolute values."""
    return _kept_type(t, torch.sum(torch.abs(t), _dims(t, axis), keepdims))


@operation("ReduceL2", name="l2")
def l2(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The root of the sum of squares."""
    return torch.sqrt(torch.sum(t * t, _dims(t, axis), keepdims))


@operation("ReduceSumSquare", name="sumsquare")
def sumsquare(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _kept_type(t, torch.sum(t * t, _dims(t, axis), keepdims))


@operation("ReduceLogSum", name="logsum")
def logsum(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum."""
    return torch.log(torch.sum(t, _dims(t, axis), keepdims))


@operation("ReduceLogSumExp", name="logsumexp")
def logsumexp(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return torch.logsumexp(t, _dims(t, axis), keepdims)


@operation("ReduceMax", name="max")
def max_(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return torch.amax(t, _dims(t, axis), keepdims)


@operation("ReduceMin", name="min")
def min_(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return torch.amin(t, _dims(t, axis), keepdims)


@operation("ReduceProd", name="prod")
def prod(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    result = t
    for dim in sorted((d % max(t.dim(), 1) for d in _dims(t, axis)), reverse=True):
        result = torch.prod(result, dim, keepdim=True)
    return _kept_type(t, _dropped(t, result, axis, keepdims))


@operation("ReduceMedian", name="median")
def median(t: Operand, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The middle element; of two, the smaller."""
    dims = sorted(d % max(t.dim(), 1) for d in _dims(t, axis))
    if not dims:
        return t.clone()
    others = [d for d in range(t.dim()) if d not in dims]
    flat = t.permute([*others, *dims]).reshape([*(t.shape[d] for d in others), -1])
    result = torch.median(flat, -1).values
    shape = [1 if d in dims else n for d, n in enumerate(t.shape)]
    return result.reshape(shape) if keepdims else result


def _dropped(t: Tensor, found: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    return found if keepdims else found.squeeze(_dims(t, axis)) if t.dim() else found


@operation("ArgMax")
def argmax(t: Operand, dim: int = 0, keepdim: bool = False) -> Tensor:
    """Where the largest element of a dimension is."""
    return torch.argmax(t, dim, keepdim).to(torch.int32)


@operation("ArgMin")
def argmin(t: Operand, dim: int = 0, keepdim: bool = False) -> Tensor:
    return torch.argmin(t, dim, keepdim).to(torch.int32)


@operation("CumSum")
def cumsum(t: Operand, dim: int = 0) -> Tensor:
    return _kept_type(t, torch.cumsum(t, dim))


@operation("LambSquare")
def lamb_square(t: Operand) -> Tensor:
    """The sum of squares, as a float."""
    return torch.sum(t.float() * t.float())
