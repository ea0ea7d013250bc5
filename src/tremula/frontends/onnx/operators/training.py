"""Optimisers of ai.onnx.preview.training, as operators."""

import torch
from torch import Tensor

from tremula.frontends.onnx.context import NodeContext
from tremula.frontends.onnx.table import operator
from tremula.ir.optim.formulas import adam_direction, moments, one_minus_power

_DOMAIN = "ai.onnx.preview.training"


def _groups(tensors: tuple[Tensor, ...], n_kinds: int) -> list[tuple[Tensor, ...]]:
    """Operands come as all weights, all gradients, all states of one kind, …"""
    n = len(tensors) // n_kinds
    return list(zip(*(tensors[i * n : (i + 1) * n] for i in range(n_kinds)), strict=True))


def _flat(columns: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(tensor for column in zip(*columns, strict=True) for tensor in column)


@operator("Momentum", domain=_DOMAIN)
def momentum(
    rate: Tensor,
    count: Tensor,
    *tensors: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Tensor, ...]:
    """Gradient descent with momentum, standard or Nesterov's."""
    results = []
    for x, gradient, velocity in _groups(tensors, 3):
        regularised = gradient + norm_coefficient * x
        share = torch.where(count > 0, torch.full_like(rate, beta), torch.ones_like(rate))
        new = alpha * velocity + share * regularised
        step = regularised + alpha * new if mode == "nesterov" else new
        results.append((x - rate * step, new))
    return _flat(results)


@operator("Adagrad", domain=_DOMAIN)
def adagrad(
    rate: Tensor,
    count: Tensor,
    *tensors: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:
    """Steps divided by the root of all squares so far."""
    results = []
    size = rate / (1 + count * decay_factor)
    for x, gradient, squares in _groups(tensors, 3):
        regularised = norm_coefficient * x + gradient
        new = squares + regularised * regularised
        results.append((x - size * regularised / (torch.sqrt(new) + epsilon), new))
    return _flat(results)


@operator("Adam", domain=_DOMAIN)
def adam(
    rate: Tensor,
    count: Tensor,
    *tensors: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Tensor, ...]:
    """Steps by running means of gradients and of their squares."""
    steps, results = count.to(rate.dtype), []
    root, bias = torch.sqrt(one_minus_power(beta, steps)), one_minus_power(alpha, steps)
    size = torch.where(count > 0, rate * root / bias, rate)
    for x, gradient, first, second in _groups(tensors, 4):
        regularised = norm_coefficient * x + gradient
        mean, square = moments(regularised, first, second, alpha, beta)
        new = x - size * adam_direction(mean, square, epsilon)
        results.append(((1 - norm_coefficient_post) * new, mean, square))
    return _flat(results)


@operator("Gradient", domain=_DOMAIN)
def gradient(
    *operands: Tensor, xs: list[str], y: str, zs: list[str] | None = None, context: NodeContext
) -> tuple[Tensor, ...]:
    """The gradient of a value of the graph, where some others have the values given."""
    with torch.enable_grad():
        variables = [x.detach().requires_grad_() for x in operands[: len(xs)]]
        others = zip(zs or [], operands[len(xs) :], strict=True)
        result = context.recompute({**dict(zip(xs, variables, strict=True)), **dict(others)}, [y])
        gradients = torch.autograd.grad(result[y].sum(), variables, allow_unused=True)
    pairs = zip(gradients, variables, strict=True)
    return tuple(torch.zeros_like(v) if g is None else g for g, v in pairs)
