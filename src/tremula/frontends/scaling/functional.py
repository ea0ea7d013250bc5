"""Operations of PyTorch, unit-scaled: normal inputs give values and gradients of variance one.

A factor of a value on its way through the network must be the same forwards and backwards, else
gradients of different paths would be added with different factors; so `linear` multiplies the
gradient of its input by the factor of its result. Weights end a path: their gradients have a
separate factor. (Blake, Orr and Luschi, "Unit Scaling", arXiv:2303.11257.)
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from tremula.frontends.poptorch.ops import float8
from tremula.frontends.scaling.factors import (
    FUNCTIONS,
    cross_entropy_factor,
    function_factors,
    product_factors,
    scaled,
    softmax_factors,
)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    formats: float8.Float8Formats | None = None,
    is_last: bool = False,
) -> Tensor:
    """The product x · weightᵀ, weights being normal; with `formats`, of 8-bit floats.

    A layer that `is_last` ends in the loss: the gradient of its input has its own factor.
    """
    n_out, n_in = weight.shape
    forward, of_x, of_weight = product_factors(n_in, x.numel() // n_in, n_out)
    x = scaled(x, backward=of_x if is_last else forward)
    weight = scaled(weight, backward=of_weight)
    product = (
        functional.linear(x, weight) if formats is None else float8.linear(x, weight, None, formats)
    )
    result = scaled(product, forward=forward)
    return result if bias is None else result + _shared(bias, x.numel() // n_in)


def _shared(parameter: Tensor, n_uses: int) -> Tensor:
    """A parameter that is added or multiplied in many places: its gradient is a sum over them."""
    return scaled(parameter, backward=1 / math.sqrt(max(n_uses, 1)))


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """A product of two activations; one factor for all three, since both are on paths."""
    n_rows, n_inner, n_cols = a.shape[-2], a.shape[-1], b.shape[-1]
    factors = product_factors(n_inner, n_rows, n_cols)
    common = math.prod(factors) ** (1 / 3)
    a, b = (scaled(t, backward=common) for t in (a, b))
    return scaled(a @ b, forward=common)


def _function(name: str, x: Tensor) -> Tensor:
    """One factor for value and gradient: the geometric mean of the two."""
    forward, backward = function_factors(name)
    common = math.sqrt(forward * backward)
    return scaled(FUNCTIONS[name](scaled(x, backward=common)), forward=common)


def gelu(x: Tensor) -> Tensor:
    """torch.nn.functional.gelu, unit-scaled."""
    return _function("gelu", x)


def relu(x: Tensor) -> Tensor:
    """torch.relu, unit-scaled."""
    return _function("relu", x)


def silu(x: Tensor) -> Tensor:
    """torch.nn.functional.silu, unit-scaled."""
    return _function("silu", x)


def sigmoid(x: Tensor) -> Tensor:
    """torch.sigmoid, unit-scaled."""
    return _function("sigmoid", x)


def tanh(x: Tensor) -> Tensor:
    """torch.tanh, unit-scaled."""
    return _function("tanh", x)


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """torch.softmax, unit-scaled: its values are around one, and sum up to about their number."""
    forward, backward = softmax_factors(x.shape[dim])
    common = math.sqrt(forward * backward)
    return scaled(torch.softmax(scaled(x, backward=common), dim), forward=common)


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """torch.nn.functional.dropout; what is kept grows by less, so that the variance stays one."""
    if not training or p == 0:
        return x
    factor = math.sqrt(1 - p)
    return scaled(functional.dropout(x, p, training), forward=factor, backward=factor)


def layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float = 1e-5
) -> Tensor:
    """torch.nn.functional.layer_norm; gradients of weight and bias have their own factor."""
    n_uses = x.numel() // math.prod(shape)
    weight, bias = (None if p is None else _shared(p, n_uses) for p in (weight, bias))
    return functional.layer_norm(x, shape, weight, bias, eps)


def embedding(ids: Tensor, weight: Tensor) -> Tensor:
    """Rows of normal weights; a row's gradient is the sum over its uses."""
    n_uses = ids.numel() / weight.shape[0]
    return functional.embedding(ids, scaled(weight, backward=1 / math.sqrt(max(n_uses, 1))))


def residual_split(x: Tensor, tau: float = 0.5) -> tuple[Tensor, Tensor]:
    """(branch, skip): the branch's gradient is weakened here, so that it is one within it."""
    return scaled(x, backward=math.sqrt(tau)), scaled(x, backward=math.sqrt(1 - tau))


def residual_add(branch: Tensor, skip: Tensor, tau: float = 0.5) -> Tensor:
    """√τ · branch + √(1 - τ) · skip, whose gradient goes back to both unchanged."""
    return scaled(branch, forward=math.sqrt(tau)) + scaled(skip, forward=math.sqrt(1 - tau))


def attention(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """softmax(query · keyᵀ) · value over [..., length, channels], unit-scaled."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    n = scores.shape[-1]
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    # A weighted mean of n independent values has deviation √(Σ p²), about √(e / n).
    n_seen = (n + 1) / 2 if is_causal else n
    factor = math.sqrt(n_seen / math.e) if n_seen > math.e else 1.0
    mixed = torch.softmax(scores, -1) @ scaled(value, backward=factor)
    return scaled(mixed, forward=factor)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """The mean over samples; the gradient of the logits starts with variance one."""
    n = logits.shape[-1]
    n_samples = target.numel()
    logits = scaled(logits, backward=cross_entropy_factor(n) * n_samples)
    return functional.cross_entropy(logits.reshape(-1, n), target.reshape(-1))


def mse_loss(x: Tensor, target: Tensor) -> Tensor:
    """The mean of squares; the gradient of x, the error, starts with variance one."""
    return functional.mse_loss(scaled(x, backward=x.numel() / math.sqrt(8)), target)
