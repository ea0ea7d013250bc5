"""The mathematics of PopART's optimisers, for one weight, in operations that any execution knows.

Numbers bear PopART's names; gradients come divided by the loss scaling, and reduced.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tremula.frontends.popart.enums import AdamMode, AdaptiveMode, WeightDecayMode
from tremula.ir.optim.math import Number, Updated, Weight, bias_corrections, is_zero


@dataclass(frozen=True)
class State:
    """A tensor that an optimiser keeps for a weight."""

    prefix: str
    dtype: torch.dtype | None = torch.float32  # None: that of the weight
    initial: float = 0.0


@dataclass(frozen=True)
class Formula:
    """An update: what it keeps, and what it computes."""

    name: str
    states: tuple[State, ...]
    compute: Callable[[Weight], Updated]
    counts_steps: bool = False


# -- SGD -------------------------------------------------------------------------------------------


def plain_sgd(weight: Weight) -> Updated:
    """Without a velocity: w·(1 - lr(1-dm)wd) - g·lr(1-dm)."""
    n = weight.numbers
    rate = n["learningRate"] * (1 - n["dampening"])
    return weight.value - _decayed(weight.grad, weight) * rate, {}


def separate_sgd(weight: Weight) -> Updated:
    n = weight.numbers
    grad = _decayed(weight.grad, weight)
    scaling = n["velocityScaling"]
    velocity = weight.states["Accl1"] * n["momentum"]
    velocity = velocity + grad * ((1 - n["dampening"]) * scaling)
    change = velocity / scaling
    if weight.nesterov:
        change = grad + change * n["momentum"]
    return weight.value - change * n["learningRate"], {"Accl1": velocity}


def combined_sgd(weight: Weight) -> Updated:
    """The state holds momentum and weight decay of the next step already."""
    n = weight.numbers
    scaling, damped = n["velocityScaling"], 1 - n["dampening"]
    velocity = weight.states["Accl1"] + weight.grad * (damped * scaling)
    value = weight.value - velocity * (n["learningRate"] / scaling)
    following = velocity * n["momentum"] + value * (damped * n["weightDecay"] * scaling)
    return value, {"Accl1": following}


def first_velocity(value: Tensor, numbers: dict[str, float]) -> Tensor:
    """What `combined_sgd` begins with."""
    scaling, damped = numbers["velocityScaling"], 1 - numbers["dampening"]
    return value.float() * (damped * numbers["weightDecay"] * scaling)


# -- Adam ------------------------------------------------------------------------------------------


def adam(mode: AdamMode, decay: WeightDecayMode) -> Callable[[Weight], Updated]:
    is_penalty = decay is WeightDecayMode.L2Regularization

    def compute(weight: Weight) -> Updated:
        n = weight.numbers
        grad = _decayed(weight.grad, weight) if is_penalty else weight.grad
        mean = weight.states["Accl1"] * n["beta1"] + grad * (1 - n["beta1"])
        decayed = weight.states["Accl2"] * n["beta2"]
        is_max = mode is AdamMode.AdaMax
        square = (
            torch.maximum(decayed, grad.abs())
            if is_max
            else decayed + grad * grad * (1 - n["beta2"])
        )
        direction = _direction(mode, weight, mean, square)
        direction = direction if is_penalty else _decayed(direction, weight)
        if mode in (AdamMode.Lamb, AdamMode.LambNoBias):
            direction = direction * _trust(weight, direction)
        new = {"Accl1": mean, "Accl2": square}
        return weight.value - direction * n["learningRate"], new

    return compute


def _direction(mode: AdamMode, weight: Weight, mean: Tensor, square: Tensor) -> Tensor:
    eps = weight.numbers["eps"]
    if mode is AdamMode.AdaMax:
        return mean * weight.scalars[0] / (square + eps)
    root = torch.sqrt(square)
    if mode in (AdamMode.AdamNoBias, AdamMode.LambNoBias):
        return mean / (root + eps)
    first, second = weight.scalars
    return mean * first / (root * second + eps)


def _trust(weight: Weight, direction: Tensor) -> Tensor:
    """The length of the weights over that of the step; 1 where either is 0."""
    longest = weight.numbers["maxWeightNorm"]
    own = torch.sqrt(torch.sum(weight.value * weight.value))
    own = torch.minimum(own, longest) if isinstance(longest, Tensor) else own.clamp(max=longest)
    other = torch.sqrt(torch.sum(direction * direction))
    is_degenerate = (own == 0) | (other == 0)
    one = torch.ones_like(own)
    return torch.where(is_degenerate, one, own / torch.where(is_degenerate, one, other))


def step_scalars(numbers: dict[str, Number], steps: Tensor) -> tuple[Tensor, ...]:
    """What the bias of a young mean is corrected with."""
    return bias_corrections(numbers, steps)


# -- adaptive --------------------------------------------------------------------------------------


def adaptive(
    mode: AdaptiveMode, decay: WeightDecayMode, *, is_tensorflows: bool
) -> Callable[[Weight], Updated]:
    is_penalty = decay is WeightDecayMode.L2Regularization

    def compute(weight: Weight) -> Updated:
        n = weight.numbers
        grad = _decayed(weight.grad, weight) if is_penalty else weight.grad
        change, new = _ADAPTIVE[mode](weight, grad, is_tensorflows)
        if is_tensorflows:
            change = change * n["learningRate"]
        if "Accl3" in weight.states:
            change = new["Accl3"] = weight.states["Accl3"] * n["momentum"] + change
        if not is_tensorflows:
            change = change * n["learningRate"]
        if not is_penalty and not is_zero(n["weightDecay"]):
            change = change + weight.value * (n["weightDecay"] * n["learningRate"])
        return weight.value - change, new

    return compute


def _divided(grad: Tensor, square: Tensor, weight: Weight, is_tensorflows: bool) -> Tensor:
    eps = weight.numbers["eps"]
    root = torch.sqrt(square + eps) if is_tensorflows else torch.sqrt(square) + eps
    return grad / root


def _ada_grad(weight: Weight, grad: Tensor, is_tensorflows: bool) -> Updated:
    square = weight.states["Accl1"] + grad * grad
    return _divided(grad, square, weight, is_tensorflows), {"Accl1": square}


def _rms_prop(weight: Weight, grad: Tensor, is_tensorflows: bool) -> Updated:
    square = _mean(weight, "Accl1", grad * grad)
    return _divided(grad, square, weight, is_tensorflows), {"Accl1": square}


def _centred(weight: Weight, grad: Tensor, is_tensorflows: bool) -> Updated:
    square, mean = _mean(weight, "Accl1", grad * grad), _mean(weight, "Accl2", grad)
    variance = square - mean * mean
    return _divided(grad, variance, weight, is_tensorflows), {"Accl1": square, "Accl2": mean}


def _ada_delta(weight: Weight, grad: Tensor, _is_tensorflows: bool) -> Updated:
    eps = weight.numbers["eps"]
    square = _mean(weight, "Accl1", grad * grad)
    change = grad * torch.sqrt(weight.states["Accl2"] + eps) / torch.sqrt(square + eps)
    return change, {"Accl1": square, "Accl2": _mean(weight, "Accl2", change * change)}


def _mean(weight: Weight, prefix: str, value: Tensor) -> Tensor:
    alpha = weight.numbers["alpha"]
    return weight.states[prefix] * alpha + value * (1 - alpha)


_ADAPTIVE = {
    AdaptiveMode.AdaGrad: _ada_grad,
    AdaptiveMode.RMSProp: _rms_prop,
    AdaptiveMode.CenteredRMSProp: _centred,
    AdaptiveMode.AdaDelta: _ada_delta,
}


def _decayed(grad: Tensor, weight: Weight) -> Tensor:
    decay = weight.numbers["weightDecay"]
    return grad if is_zero(decay) else grad + weight.value * decay
