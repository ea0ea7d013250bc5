"""PopART's optimisers as formulas for one weight, made of the parts that all front ends share.

Hyperparameters have PopART's names; gradients are already divided by the loss scaling, and reduced.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tremula.frontends.popart.enums import AdamMode, AdaptiveMode, WeightDecayMode
from tremula.ir.optim.formulas import (
    Updated,
    WeightToUpdate,
    adam_direction,
    capped,
    is_zero,
    moments,
    moving_average,
    norm,
    over_root,
    scaled_by_rms,
    trust_ratio,
    with_decay,
)

# -- SGD -------------------------------------------------------------------------------------------


def plain_sgd(weight: WeightToUpdate) -> Updated:
    """Without a velocity: w·(1 - lr(1-dm)wd) - g·lr(1-dm)."""
    hyper = weight.hyper
    rate = hyper["learningRate"] * (1 - hyper["dampening"])
    return weight.value - _decayed(weight.grad, weight) * rate, {}


def separate_sgd(weight: WeightToUpdate) -> Updated:
    hyper = weight.hyper
    grad = _decayed(weight.grad, weight)
    scaling = hyper["velocityScaling"]
    velocity = weight.states["Accl1"] * hyper["momentum"]
    velocity = velocity + grad * ((1 - hyper["dampening"]) * scaling)
    change = velocity / scaling
    if weight.nesterov:
        change = grad + change * hyper["momentum"]
    return weight.value - change * hyper["learningRate"], {"Accl1": velocity}


def combined_sgd(weight: WeightToUpdate) -> Updated:
    """The state holds momentum and weight decay of the next step already."""
    hyper = weight.hyper
    scaling, damped = hyper["velocityScaling"], 1 - hyper["dampening"]
    velocity = weight.states["Accl"] + weight.grad * (damped * scaling)
    value = weight.value - velocity * (hyper["learningRate"] / scaling)
    following = velocity * hyper["momentum"] + value * (damped * hyper["weightDecay"] * scaling)
    return value, {"Accl": following}


def first_velocity(value: Tensor, hyper: Mapping[str, float]) -> Tensor:
    """The state that `combined_sgd` begins with."""
    scaling, damped = hyper["velocityScaling"], 1 - hyper["dampening"]
    return value.float() * (damped * hyper["weightDecay"] * scaling)


def compound_numbers(kind: str, hyper: Mapping[str, float], repeats: "Repeats") -> dict[str, float]:
    """The numbers of SGD as PopART sends them to the device, by the beginning of their names."""
    rate, damped = hyper["learningRate"], 1 - hyper["dampening"]
    loss_scale = repeats.loss_scaling * repeats.n_averaged
    if kind.endswith("SGD0"):
        return {
            "scaledLearningRate0": rate * damped / loss_scale,
            "weightDecayScaleFactor0": 1 - rate * damped * hyper["weightDecay"],
        }
    if kind.endswith("SGD1"):
        scaling, n = hyper["velocityScaling"], repeats.n_replicas
        return {
            "scaledLearningRate1": rate / (scaling * n),
            "scaledMomentum1": hyper["momentum"] / n,
            "scaledWeightDecay1": damped * hyper["weightDecay"] * scaling,
            "dampeningScaleFactor1": damped * scaling * n / loss_scale,
        }
    return {}


@dataclass(frozen=True)
class Repeats:
    """What the compound numbers of SGD depend on besides the optimiser."""

    loss_scaling: float
    n_replicas: int
    n_averaged: int  # gradients whose mean is taken; 1 for a sum


# -- Adam ------------------------------------------------------------------------------------------


def adam(mode: AdamMode, decay: WeightDecayMode) -> Callable[[WeightToUpdate], Updated]:
    """Adam, AdaMax or LAMB; decay is part of the gradient or of the step."""
    is_penalty = decay is WeightDecayMode.L2Regularization

    def compute(weight: WeightToUpdate) -> Updated:
        hyper = weight.hyper
        grad = _decayed(weight.grad, weight) if is_penalty else weight.grad
        mean, square = _moments(mode, weight, grad)
        direction = _direction(mode, weight, mean, square)
        direction = direction if is_penalty else _decayed(direction, weight)
        if mode in (AdamMode.Lamb, AdamMode.LambNoBias):
            weight_norm = capped(norm(weight.value), hyper["maxWeightNorm"])
            direction = direction * trust_ratio(weight_norm, norm(direction))
        new = {"Accl1": mean, "Accl2": square}
        return weight.value - direction * hyper["learningRate"], new

    return compute


def _moments(mode: AdamMode, weight: WeightToUpdate, grad: Tensor) -> tuple[Tensor, Tensor]:
    beta1, beta2 = weight.hyper["beta1"], weight.hyper["beta2"]
    first, second = weight.states["Accl1"], weight.states["Accl2"]
    if mode is AdamMode.AdaMax:
        mean = moving_average(first, grad, beta1)
        return mean, torch.maximum(second * beta2, grad.abs())
    return moments(grad, first, second, beta1, beta2)


def _direction(mode: AdamMode, weight: WeightToUpdate, mean: Tensor, square: Tensor) -> Tensor:
    eps = weight.hyper["eps"]
    if mode is AdamMode.AdaMax:
        return mean * weight.scalars[0] / (square + eps)
    return adam_direction(mean, square, eps, *weight.scalars)  # none without bias correction


# -- adaptive --------------------------------------------------------------------------------------


def adaptive(
    mode: AdaptiveMode, decay: WeightDecayMode, *, is_tensorflows: bool
) -> Callable[[WeightToUpdate], Updated]:
    is_penalty = decay is WeightDecayMode.L2Regularization

    def compute(weight: WeightToUpdate) -> Updated:
        hyper = weight.hyper
        grad = _decayed(weight.grad, weight) if is_penalty else weight.grad
        change, new = _ADAPTIVE[mode](weight, grad, is_tensorflows)
        if is_tensorflows:
            change = change * hyper["learningRate"]
        if "Accl3" in weight.states:
            change = new["Accl3"] = weight.states["Accl3"] * hyper["momentum"] + change
        if not is_tensorflows:
            change = change * hyper["learningRate"]
        if not is_penalty and not is_zero(hyper["weightDecay"]):
            # TensorFlow's momentum holds the learning rate already: PopART then decays without it.
            has_rate = is_tensorflows and "Accl3" in weight.states
            rate = 1.0 if has_rate else hyper["learningRate"]
            change = change + weight.value * (hyper["weightDecay"] * rate)
        return weight.value - change, new

    return compute


def _ada_grad(weight: WeightToUpdate, grad: Tensor, is_tensorflows: bool) -> Updated:
    square = weight.states["Accl1"] + grad * grad
    change = over_root(grad, square, weight.hyper["eps"], is_tensorflows=is_tensorflows)
    return change, {"Accl1": square}


def _rms_prop(weight: WeightToUpdate, grad: Tensor, is_tensorflows: bool) -> Updated:
    """Centred if there is a state for the mean."""
    return scaled_by_rms(grad, weight, is_tensorflows=is_tensorflows)


def _ada_delta(weight: WeightToUpdate, grad: Tensor, _is_tensorflows: bool) -> Updated:
    eps, alpha = weight.hyper["eps"], weight.hyper["alpha"]
    square = moving_average(weight.states["Accl1"], grad * grad, alpha)
    change = grad * torch.sqrt(weight.states["Accl2"] + eps) / torch.sqrt(square + eps)
    changes = moving_average(weight.states["Accl2"], change * change, alpha)
    return change, {"Accl1": square, "Accl2": changes}


_ADAPTIVE = {
    AdaptiveMode.AdaGrad: _ada_grad,
    AdaptiveMode.RMSProp: _rms_prop,
    AdaptiveMode.CenteredRMSProp: _rms_prop,
    AdaptiveMode.AdaDelta: _ada_delta,
}


def _decayed(grad: Tensor, weight: WeightToUpdate) -> Tensor:
    return with_decay(grad, weight.value, weight.hyper["weightDecay"])
