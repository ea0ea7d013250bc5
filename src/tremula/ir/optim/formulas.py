"""The formulas of optimisers, once for all front ends, in simple functional operations.

First the parts that several optimisers share, on plain tensors. Then PyTorch's optimisers as
functions of a `WeightToUpdate`: each returns the new value and the new states by their prefixes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from tremula.ir.optim.rule import Number

States = Mapping[str, Tensor]
Updated = tuple[Tensor, dict[str, Tensor]]
Hyperparameters = Mapping[str, Number]

CLIP_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_


@dataclass(frozen=True)
class WeightToUpdate:
    """A weight before its update; all tensors are float32."""

    value: Tensor
    grad: Tensor
    states: States  # by prefix
    hyper: Hyperparameters  # of its group: floats are constant, 0-dim tensors variable
    scalars: tuple[Tensor, ...]  # computed from the number of its steps: `Formula.step_scalars`
    nesterov: bool = False


@dataclass(frozen=True)
class StateKind:
    """A state that a formula has for each weight, or for each that needs it."""

    prefix: str  # of its name; the state "Step" counts the updates of a weight
    dtype: torch.dtype | None = torch.float32  # None: that of the weight
    initial_value: float = 0.0
    # A weight has the state if none of these hyperparameters is the constant 0.
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Formula:
    """How one weight is updated. Formulas of the same kind and states compute the same."""

    kind: str
    states: tuple[StateKind, ...]
    compute: Callable[[WeightToUpdate], Updated] = field(compare=False, repr=False)
    # (hyperparameters, vector of steps) -> vectors, one element of each for a weight's `scalars`.
    step_scalars: Callable[[Hyperparameters, Tensor], tuple[Tensor, ...]] = field(
        default=lambda _hyper, _steps: (), compare=False, repr=False
    )
    variant: str = ""  # the front end's name for it


# -- parts -----------------------------------------------------------------------------------------


def is_zero(number: Number) -> bool:
    """True only for the constant 0: a variable may change."""
    return not isinstance(number, Tensor) and number == 0


def with_decay(grad: Tensor, value: Tensor, weight_decay: Number) -> Tensor:
    """A gradient or a step with the share of the weight that decays added to it."""
    return grad if is_zero(weight_decay) else grad + value * weight_decay


def moving_average(old: Tensor, new: Tensor, decay: Number) -> Tensor:
    """The exponential moving average: decay · old + (1 - decay) · new."""
    return old * decay + new * (1 - decay)


def moments(
    grad: Tensor, mean: Tensor, square: Tensor, beta1: Number, beta2: Number
) -> tuple[Tensor, Tensor]:
    """Adam's running means of the gradient and of its square, after this gradient."""
    return moving_average(mean, grad, beta1), moving_average(square, grad * grad, beta2)


def adam_direction(
    mean: Tensor,
    square: Tensor,
    eps: Number,
    mean_correction: Tensor | None = None,
    root_correction: Tensor | None = None,
) -> Tensor:
    """Adam's step for a learning rate of 1: mean / (sqrt(square) + eps), both corrected."""
    root = torch.sqrt(square)
    if mean_correction is not None:
        mean = mean * mean_correction
    if root_correction is not None:
        root = root * root_correction
    return mean / (root + eps)


def bias_corrections(hyper: Hyperparameters, steps: Tensor) -> tuple[Tensor, Tensor]:
    """1 / (1 - beta1^step) and 1 / sqrt(1 - beta2^step), for a vector of steps."""
    first = one_minus_power(hyper["beta1"], steps)
    second = one_minus_power(hyper["beta2"], steps)
    return torch.reciprocal(first), torch.reciprocal(torch.sqrt(second))


def one_minus_power(base: Number, steps: Tensor) -> Tensor:
    """1 - base^steps; as -expm1(steps log base), since 1 - 0.999 has lost half its digits."""
    if isinstance(base, Tensor):
        return torch.neg(torch.expm1(steps * torch.log(base)))
    if base == 0:
        return torch.ones_like(steps)
    return torch.neg(torch.expm1(steps * math.log(base)))


def trust_ratio(weight_norm: Tensor, step_norm: Tensor) -> Tensor:
    """LAMB's factor of a step: the norm of the weight over that of the step; 1 if either is 0."""
    is_degenerate = (weight_norm == 0) | (step_norm == 0)
    one = torch.ones_like(weight_norm)
    ratio = weight_norm / torch.where(is_degenerate, one, step_norm)
    return torch.where(is_degenerate, one, ratio)


def capped(norm: Tensor, maximum: Number) -> Tensor:
    """The norm of a weight as LAMB counts it: at most `maximum`."""
    if isinstance(maximum, Tensor):
        return torch.minimum(norm, maximum)
    return norm if math.isinf(maximum) else torch.clamp(norm, max=maximum)


def norm(tensor: Tensor) -> Tensor:
    """The 2-norm of all elements."""
    return torch.sqrt(torch.sum(tensor * tensor))


def norm_of_all(grads: Sequence[Tensor]) -> Tensor:
    """The 2-norm of all gradients together, in float32."""
    total = _sum_of_squares(grads[0])
    for grad in grads[1:]:
        total = total + _sum_of_squares(grad)
    return torch.sqrt(total)


def _sum_of_squares(tensor: Tensor) -> Tensor:
    tensor = tensor.to(torch.float32)
    return torch.sum(tensor * tensor)


def clip_divisor(scaled_norm: Tensor, max_norm: float, loss_scaling: Number) -> Tensor:
    """What all gradients are divided by so that their global 2-norm is at most `max_norm`.

    It includes the loss scaling: `scaled_norm` is the norm of the scaled gradients.
    """
    excess = (scaled_norm / loss_scaling + CLIP_EPSILON) / max_norm
    return torch.maximum(excess, torch.ones_like(excess)) * loss_scaling


# -- PyTorch's optimisers, and LAMB ----------------------------------------------------------------


def sgd(weight: WeightToUpdate) -> Updated:
    """PyTorch's SGD; `scalars` holds the factor of the gradient where dampening is in use."""
    hyper, scalars = weight.hyper, weight.scalars
    grad = _penalised(weight)
    if "Accl1" not in weight.states:
        return weight.value - grad * hyper["lr"], {}
    momentum = hyper["momentum"]
    velocity = weight.states["Accl1"] * momentum + (grad * scalars[0] if scalars else grad)
    change = grad + velocity * momentum if weight.nesterov else velocity
    return weight.value - change * hyper["lr"], {"Accl1": velocity}


def dampening_factors(hyper: Hyperparameters, steps: Tensor) -> tuple[Tensor, ...]:
    """1 - dampening; but PyTorch does not damp the first gradient, or without momentum."""
    is_undamped = steps == 1
    if isinstance(hyper["momentum"], Tensor):
        is_undamped = is_undamped | (hyper["momentum"] == 0)
    ones = torch.ones_like(steps)
    return (torch.where(is_undamped, ones, ones - hyper["dampening"]),)


def adam(weight: WeightToUpdate) -> Updated:
    """Adam: weight decay is an L2 penalty, so it enters the momenta."""
    mean, square = _moments(_penalised(weight), weight)
    step_size, root_correction = weight.scalars
    direction = adam_direction(mean, square, weight.hyper["eps"], root_correction=root_correction)
    return weight.value - direction * step_size, {"Accl1": mean, "Accl2": square}


def adam_scalars(hyper: Hyperparameters, steps: Tensor) -> tuple[Tensor, ...]:
    """The learning rate times the correction of the mean, and the correction of the root."""
    first, second = bias_corrections(hyper, steps)
    return first * hyper["lr"], second


def adamw(weight: WeightToUpdate) -> Updated:
    """Adam whose weights decay by themselves, outside the momenta."""
    value, hyper = weight.value, weight.hyper
    if not is_zero(hyper["weight_decay"]):
        value = value * (1 - hyper["lr"] * hyper["weight_decay"])
    return adam(replace(weight, value=value, hyper={**hyper, "weight_decay": 0.0}))


def lamb(weight: WeightToUpdate) -> Updated:
    """Adam's direction, as long as the norm of the weights up to `max_weight_norm`."""
    mean, square = _moments(weight.grad, weight)
    direction = adam_direction(mean, square, weight.hyper["eps"], *weight.scalars)
    direction = with_decay(direction, weight.value, weight.hyper["weight_decay"])
    weight_norm = capped(norm(weight.value), weight.hyper["max_weight_norm"])
    step = trust_ratio(weight_norm, norm(direction)) * weight.hyper["lr"]
    return weight.value - direction * step, {"Accl1": mean, "Accl2": square}


def rmsprop(weight: WeightToUpdate, *, is_tensorflows: bool = False) -> Updated:
    """PyTorch's RMSprop, or TensorFlow's: eps inside the root, lr inside the momentum."""
    states, hyper = weight.states, weight.hyper
    change, new = scaled_by_rms(_penalised(weight), weight, is_tensorflows=is_tensorflows)
    if is_tensorflows:
        change = change * hyper["lr"]
    if "Accl3" in states:
        change = new["Accl3"] = states["Accl3"] * hyper["momentum"] + change
    if not is_tensorflows:
        change = change * hyper["lr"]
    return weight.value - change, new


def scaled_by_rms(grad: Tensor, weight: WeightToUpdate, *, is_tensorflows: bool) -> Updated:
    """A gradient over the root of its mean square, less its mean if there is a state for that."""
    alpha = weight.hyper["alpha"]
    new = {"Accl1": moving_average(weight.states["Accl1"], grad * grad, alpha)}
    variance = new["Accl1"]
    if "Accl2" in weight.states:
        new["Accl2"] = moving_average(weight.states["Accl2"], grad, alpha)
        variance = variance - new["Accl2"] * new["Accl2"]
    return over_root(grad, variance, weight.hyper["eps"], is_tensorflows=is_tensorflows), new


def over_root(grad: Tensor, square: Tensor, eps: Number, *, is_tensorflows: bool) -> Tensor:
    """A gradient over sqrt(square) + eps; TensorFlow adds eps inside the root."""
    return grad / (torch.sqrt(square + eps) if is_tensorflows else torch.sqrt(square) + eps)


def _penalised(weight: WeightToUpdate) -> Tensor:
    return with_decay(weight.grad, weight.value, weight.hyper["weight_decay"])


def _moments(grad: Tensor, weight: WeightToUpdate) -> tuple[Tensor, Tensor]:
    old = weight.states["Accl1"], weight.states["Accl2"]
    return moments(grad, *old, weight.hyper["beta1"], weight.hyper["beta2"])


def torch_formula(
    kind: str,
    first: torch.dtype = torch.float32,
    second: torch.dtype = torch.float32,
    *,
    centered: bool = False,
    is_tensorflows: bool = False,
    corrects_bias: bool = True,
    variant: str = "",
) -> Formula:
    """The formula of sgd, adam, adamw, rmsprop or lamb, with states of these types."""
    step = StateKind("Step")
    if kind == "sgd":
        velocity = StateKind("Accl1", first, needs=("momentum",))
        states = velocity, replace(step, needs=("momentum", "dampening"))
        return Formula("sgd", states, sgd, dampening_factors, variant)
    if kind == "rmsprop":
        mean = [StateKind("Accl2", first)] if centered else []
        square = StateKind("Accl1", second, 1.0 if is_tensorflows else 0.0)
        states = square, *mean, StateKind("Accl3", first, needs=("momentum",))
        kind = "rmsprop_tf" if is_tensorflows else "rmsprop"
        compute = partial(rmsprop, is_tensorflows=is_tensorflows)
        return Formula(kind, states, compute, variant=variant)
    states = StateKind("Accl1", first), StateKind("Accl2", second)
    compute = {"adam": adam, "adamw": adamw, "lamb": lamb}[kind]
    scalars = bias_corrections if kind == "lamb" else adam_scalars
    return Formula(kind, (*states, step) if corrects_bias else states, compute, scalars, variant)
