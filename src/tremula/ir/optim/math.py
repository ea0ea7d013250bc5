"""The mathematics of one weight update, in simple functional operations that any execution knows.

Every function takes a weight with all that its update depends on, and returns its new value and its
new states by prefix.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Number = float | Tensor
States = Mapping[str, Tensor]
Updated = tuple[Tensor, dict[str, Tensor]]

CLIP_EPSILON = 1e-6  # the same as torch.nn.utils.clip_grad_norm_


@dataclass(frozen=True)
class Weight:
    """A weight before its update; all tensors are float32."""

    value: Tensor
    grad: Tensor
    states: States  # by prefix
    numbers: Mapping[str, Number]  # of its group: floats are constant, 0-dim tensors variable
    scalars: tuple[Tensor, ...]  # what follows from how many steps it has made; see each function
    nesterov: bool = False
    use_tf_variant: bool = False


def is_zero(number: Number) -> bool:
    """True only for the constant 0: a variable number may change."""
    return not isinstance(number, Tensor) and number == 0


def sgd(weight: Weight) -> Updated:
    """PyTorch's SGD; `scalars` holds the factor of the gradient where dampening is in use."""
    numbers, scalars = weight.numbers, weight.scalars
    grad = _with_decay(weight.grad, weight)
    if "Accl1" not in weight.states:
        return weight.value - grad * numbers["lr"], {}
    momentum = numbers["momentum"]
    velocity = weight.states["Accl1"] * momentum + (grad * scalars[0] if scalars else grad)
    change = grad + velocity * momentum if weight.nesterov else velocity
    return weight.value - change * numbers["lr"], {"Accl1": velocity}


def dampening_factors(numbers: Mapping[str, Number], steps: Tensor) -> tuple[Tensor, ...]:
    """1 - dampening; but PyTorch does not damp the first gradient, or without momentum."""
    is_undamped = steps == 1
    if isinstance(numbers["momentum"], Tensor):
        is_undamped = is_undamped | (numbers["momentum"] == 0)
    ones = torch.ones_like(steps)
    return (torch.where(is_undamped, ones, ones - numbers["dampening"]),)


def adam(weight: Weight) -> Updated:
    """Adam: weight decay is an L2 penalty, so it enters the momenta."""
    mean, square = _moments(_with_decay(weight.grad, weight), weight)
    step_size, square_scale = weight.scalars
    denominator = torch.sqrt(square) * square_scale + weight.numbers["eps"]
    return weight.value - mean / denominator * step_size, {"Accl1": mean, "Accl2": square}


def adamw(weight: Weight) -> Updated:
    """Adam whose weights decay by themselves, outside the momenta."""
    value, numbers = weight.value, weight.numbers
    if not is_zero(numbers["weight_decay"]):
        value = value * (1 - numbers["lr"] * numbers["weight_decay"])
    return adam(replace(weight, value=value, numbers={**numbers, "weight_decay": 0.0}))


def lamb(weight: Weight) -> Updated:
    """Adam's direction, as long as the weights' own norm: phi(z) = min(z, max_weight_norm)."""
    mean, square = _moments(weight.grad, weight)
    direction, root = mean, torch.sqrt(square)
    if weight.scalars:
        direction, root = mean * weight.scalars[0], root * weight.scalars[1]
    direction = _with_decay(direction / (root + weight.numbers["eps"]), weight)
    weight_norm = _capped(_norm(weight.value), weight.numbers["max_weight_norm"])
    direction_norm = _norm(direction)
    is_degenerate = (weight_norm == 0) | (direction_norm == 0)
    one = torch.ones_like(weight_norm)
    ratio = weight_norm / torch.where(is_degenerate, one, direction_norm)
    trust = torch.where(is_degenerate, one, ratio)
    step = trust * weight.numbers["lr"]
    return weight.value - direction * step, {"Accl1": mean, "Accl2": square}


def rmsprop(weight: Weight) -> Updated:
    """PyTorch's RMSprop, or TensorFlow's: eps inside the root, lr inside the momentum."""
    states, numbers = weight.states, weight.numbers
    grad = _with_decay(weight.grad, weight)
    alpha, rest = numbers["alpha"], 1 - numbers["alpha"]
    new = {"Accl1": states["Accl1"] * alpha + grad * grad * rest}
    variance = new["Accl1"]
    if "Accl2" in states:
        new["Accl2"] = states["Accl2"] * alpha + grad * rest
        variance = variance - new["Accl2"] * new["Accl2"]
    if weight.use_tf_variant:
        change = grad / torch.sqrt(variance + numbers["eps"]) * numbers["lr"]
    else:
        change = grad / (torch.sqrt(variance) + numbers["eps"])
    if "Accl3" in states:
        change = new["Accl3"] = states["Accl3"] * numbers["momentum"] + change
    if not weight.use_tf_variant:
        change = change * numbers["lr"]
    return weight.value - change, new


MATHEMATICS = {"sgd": sgd, "adam": adam, "adamw": adamw, "lamb": lamb, "rmsprop": rmsprop}


def bias_corrections(numbers: Mapping[str, Number], steps: Tensor) -> tuple[Tensor, Tensor]:
    """1 / (1 - beta1^step) and 1 / sqrt(1 - beta2^step), for a vector of steps."""
    first = _one_minus_power(numbers["beta1"], steps)
    second = _one_minus_power(numbers["beta2"], steps)
    return torch.reciprocal(first), torch.reciprocal(torch.sqrt(second))


def _one_minus_power(base: Number, steps: Tensor) -> Tensor:
    """1 - base^steps; as -expm1(steps log base), since 1 - 0.999 has lost half its digits."""
    if isinstance(base, Tensor):
        return torch.neg(torch.expm1(steps * torch.log(base)))
    if base == 0:
        return torch.ones_like(steps)
    return torch.neg(torch.expm1(steps * math.log(base)))


def norm_of_all(grads: Sequence[Tensor]) -> Tensor:
    """The 2-norm of all gradients together, in float32."""
    total = sum_of_squares(grads[0])
    for grad in grads[1:]:
        total = total + sum_of_squares(grad)
    return torch.sqrt(total)


def clip_divisor(scaled_norm: Tensor, max_norm: float, loss_scaling: Number) -> Tensor:
    """What all gradients are divided by so that their global 2-norm is at most `max_norm`.

    The loss scaling is part of it: `scaled_norm` is that of gradients as they come, scaled.
    """
    excess = (scaled_norm / loss_scaling + CLIP_EPSILON) / max_norm
    return torch.maximum(excess, torch.ones_like(excess)) * loss_scaling


def sum_of_squares(tensor: Tensor) -> Tensor:
    """The sum of the squares of all elements, in float32."""
    tensor = tensor.to(torch.float32)
    return torch.sum(tensor * tensor)


def _norm(tensor: Tensor) -> Tensor:
    return torch.sqrt(torch.sum(tensor * tensor))


def _capped(norm: Tensor, maximum: Number) -> Tensor:
    if isinstance(maximum, Tensor):
        return torch.minimum(norm, maximum)
    return norm if math.isinf(maximum) else torch.clamp(norm, max=maximum)


def _with_decay(grad: Tensor, weight: Weight) -> Tensor:
    weight_decay = weight.numbers["weight_decay"]
    return grad if is_zero(weight_decay) else grad + weight.value * weight_decay


def _moments(grad: Tensor, weight: Weight) -> tuple[Tensor, Tensor]:
    beta1, beta2 = weight.numbers["beta1"], weight.numbers["beta2"]
    mean = weight.states["Accl1"] * beta1 + grad * (1 - beta1)
    square = weight.states["Accl2"] * beta2 + grad * grad * (1 - beta2)
    return mean, square
