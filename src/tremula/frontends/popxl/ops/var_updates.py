"""`ops.var_updates`: operations that change variables, of optimisers and accumulators."""

import math

import torch
from torch import Tensor

from tremula.frontends.popxl.core.table import Indices, Operand, OptionalOperand, Scalar, operation
from tremula.ir.optim.formulas import (
    adam_direction,
    bias_corrections,
    capped,
    one_minus_power,
    trust_ratio,
)

PAGE_SECTION = (13, "Updates (`ops.var_updates`)")


def _times(t: Tensor, f: Tensor | float | None) -> Tensor:
    """A multiple, of the type of the tensor."""
    if f is None:
        return t
    return (t * (f.to(t.dtype) if isinstance(f, Tensor) else f)).to(t.dtype)


def _number(f: Tensor | float | None, default: float = 1.0) -> Tensor | float:
    return default if f is None else f


@operation("Accumulate", modifies=(0,))
def accumulate_(t: Operand, X: Operand, f: Scalar = None) -> Tensor:
    """`t ← t + f X`."""
    return t.add_(_times(X, f).to(t.dtype))


@operation("Accumulate", modifies=(0,))
def accumulate_square_(t: Operand, X: Operand, f: Scalar = 1.0) -> Tensor:
    """`t ← t + f X²`."""
    wide = X.to(t.dtype)
    return t.add_(_times(wide * wide, f))


@operation("Accumulate", modifies=(0,))
def accumulate_mean_(t: Operand, X: Operand, step: Scalar) -> Tensor:
    """`t ← step/(step + 1) t + X/(step + 1)`: the mean of all that were added since step 0."""
    n = step if isinstance(step, float) else step.float()  # type: ignore[union-attr]
    return t.copy_(t * (n / (n + 1)) + X.to(t.dtype) / (n + 1))


@operation("Accumulate", modifies=(0,))
def accumulate_moving_average_(t: Operand, X: Operand, f: Scalar) -> Tensor:
    """`t ← f t + (1 - f) X`."""
    k = _in_type(f, t)
    return t.copy_(t * k + X.to(t.dtype) * (1 - k))


@operation("Accumulate", modifies=(0,))
def accumulate_moving_average_square_(t: Operand, X: Operand, f: Scalar) -> Tensor:
    """`t ← f t + (1 - f) X²`."""
    k, wide = _in_type(f, t), X.to(t.dtype)
    return t.copy_(t * k + wide * wide * (1 - k))


def _in_type(f: Tensor | float | None, t: Tensor) -> Tensor | float:
    return f.to(t.dtype) if isinstance(f, Tensor) else _number(f)


@operation("PopartSparseAccumulate", class_name="SparseAccumulate", modifies=(0,))
def sparse_accumulate_(
    t: Operand,
    X: Operand,
    indices: Indices,
    axis: int = 0,
    f: Scalar = None,
    W: OptionalOperand = None,  # noqa: ARG001  the weight that t is laid out like
) -> Tensor:
    """Add rows of X to the rows of t that the indices name."""
    return t.index_add_(axis, indices.reshape(-1).long(), _rows(t, X, indices, axis, f))


def _rows(t: Tensor, X: Tensor, indices: Tensor, axis: int, f: Tensor | float | None) -> Tensor:
    shape = list(t.shape)
    shape[axis] = indices.numel()
    return _times(X, f).to(t.dtype).reshape(shape)


@operation("AccumulatorScale", modifies=(0,))
def accumulator_scale_(t: Operand, f: Scalar) -> Tensor:
    """`t ← f t`; with 0, zeros whatever t holds."""
    if isinstance(f, float) and f == 0.0:
        return t.zero_()
    return t.copy_(t * _number(f))


@operation("AccumulatorScale", modifies=(0,))
def accumulator_zero_(t: Operand) -> Tensor:
    return t.zero_()


@operation("AdamUpdater", modifies=("time_step",))
def adam_updater(
    acc_first_order: Operand,
    acc_second_order: Operand,
    weight: OptionalOperand = None,
    time_step: OptionalOperand = None,
    weight_decay: Scalar = None,
    beta1: Scalar = None,
    beta2: Scalar = None,
    epsilon: Scalar = 1e-07,
) -> Tensor:
    """The step of Adam; a time step is counted up first, and then corrects the moments' bias."""
    mean, square = acc_first_order.float(), acc_second_order.float()
    _check_decay(weight, weight_decay)
    corrections = ()
    if time_step is not None:
        if beta1 is None or beta2 is None:
            raise ValueError("Bias correction requires both beta1 and beta2 not None.")
        time_step.add_(1)
        betas = {"beta1": _wide(beta1), "beta2": _wide(beta2)}
        corrections = bias_corrections(betas, time_step.float())
    step = adam_direction(mean, square, _number(epsilon), *corrections)
    return _decayed(step, weight, weight_decay)


def _wide(f: Tensor | float) -> Tensor | float:
    return f.float() if isinstance(f, Tensor) else f


def _check_decay(weight: Tensor | None, weight_decay: Tensor | float | None) -> None:
    if weight_decay is not None and weight is None:
        raise ValueError("Weight decay requires weight to be not None.")


def _decayed(step: Tensor, weight: Tensor | None, weight_decay: Tensor | float | None) -> Tensor:
    if weight is None or weight_decay is None:
        return step
    return step + _times(weight.float(), weight_decay)


@operation("AdamUpdater", modifies=("time_step",))
def lamb_updater(
    acc_first_order: Operand,
    acc_second_order: Operand,
    weight: OptionalOperand = None,
    time_step: OptionalOperand = None,
    weight_decay: Scalar = None,
    beta1: Scalar = None,
    beta2: Scalar = None,
    epsilon: Scalar = 1e-07,
) -> Tensor:
    """The step of LAMB before its trust ratio: that of Adam."""
    compute = adam_updater.row.compute  # type: ignore[attr-defined]
    return compute(
        acc_first_order, acc_second_order, weight, time_step, weight_decay, beta1, beta2, epsilon
    )


@operation("AdamUpdater", modifies=("time_step",))
def adamax_updater(
    acc_first_order: Operand,
    acc_second_order: Operand,
    weight: OptionalOperand = None,
    time_step: OptionalOperand = None,
    weight_decay: Scalar = None,
    beta1: Scalar = 0.9,
    epsilon: Scalar = 1e-07,
) -> Tensor:
    """The step of AdaMax, whose second accumulator holds a maximum."""
    _check_decay(weight, weight_decay)
    if time_step is None:
        raise ValueError("AdaMax requires time_step not None.")
    time_step.add_(1)
    bias = one_minus_power(_wide(_number(beta1)), time_step.float())
    return _decayed(
        acc_first_order.float() / bias / (acc_second_order.float() + _number(epsilon)),
        weight,
        weight_decay,
    )


@operation("AdamVarUpdate", modifies=(0,))
def adam_var_update(
    t: Operand,
    x: Operand,
    r1: Operand,
    r2: Operand,
    learning_rate: Scalar = None,
    max_weight_norm: Scalar = None,
) -> Tensor:
    """`t ← t - rate · ‖t‖/‖x‖ · x`, with squares of both norms given; the first may be limited."""
    limit = _wide(_number(max_weight_norm, math.inf))
    ratio = trust_ratio(capped(torch.sqrt(r1.float()), limit), torch.sqrt(r2.float()))
    return t.sub_((ratio * _wide(_number(learning_rate)) * x.float()).to(t.dtype))


@operation("CopyVarUpdate", modifies=(0,))
def copy_var_update_(t: Operand, X: Operand) -> Tensor:
    """`t ← X`."""
    return t.copy_(X)
