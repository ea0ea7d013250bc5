"""Decompositions of PyTorch's fused attention: products and a softmax, forwards and backwards.

The gradient computes the probabilities as the forward pass does, so both share them.
"""

import math

import torch
from torch import Tensor

from tremula.ir.op_table import decomposes
from tremula.ir.ops.attention import spelled_out, spelled_out_backward

aten = torch.ops.aten
decomposes(torch.ops.tremula.attention.default)(spelled_out)
decomposes(torch.ops.tremula.attention_backward.default)(spelled_out_backward)


@decomposes(aten._scaled_dot_product_flash_attention_for_cpu.default)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The result, and the logarithm of each row's sum, which nothing on tiles reads."""
    assert dropout_p == 0, "the fused operation of the CPU is not chosen with dropout"
    key, value = _for_each_query(query, key), _for_each_query(query, value)
    scores = _scores(query, key, is_causal, attn_mask, scale)
    weights = aten._softmax.default(scores, -1, False)
    return weights @ value, aten.logsumexp.default(scores.float(), [-1])


@decomposes(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _out: Tensor,
    _logsumexp: Tensor,
    _dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    n_groups = key.shape[1]
    key, value = _for_each_query(query, key), _for_each_query(query, value)
    scores = _scores(query, key, is_causal, attn_mask, scale)
    weights = aten._softmax.default(scores, -1, False)
    of_weights = gradient @ value.transpose(-2, -1)
    of_scores = aten._softmax_backward_data.default(of_weights, weights, -1, weights.dtype)
    of_scores = of_scores * _factor(query, scale)
    return (
        of_scores @ key,
        _of_groups(of_scores.transpose(-2, -1) @ query, n_groups),
        _of_groups(weights.transpose(-2, -1) @ gradient, n_groups),
    )


def _for_each_query(query: Tensor, x: Tensor) -> Tensor:
    """Keys or values of each head of the queries: several heads may share one."""
    n_shared = query.shape[1] // x.shape[1]
    return x if n_shared == 1 else x.repeat_interleave(n_shared, 1)


def _of_groups(gradient: Tensor, n_groups: int) -> Tensor:
    """The gradient of heads that were repeated."""
    if gradient.shape[1] == n_groups:
        return gradient
    return gradient.unflatten(1, (n_groups, -1)).sum(2)


def _factor(query: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _scores(
    query: Tensor, key: Tensor, is_causal: bool, attn_mask: Tensor | None, scale: float | None
) -> Tensor:
    scores = query @ key.transpose(-2, -1) * _factor(query, scale)
    if is_causal:
        is_visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = torch.where(is_visible, scores, -math.inf)
    return scores if attn_mask is None else scores + attn_mask
