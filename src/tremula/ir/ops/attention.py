"""Attention with dropout as one operation, whose mask is an operand.

PyTorch records attention without dropout as one operation, and with dropout as products and a
softmax. Here both are one: passes see the attention, and draw its mask as they draw any other.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Context = Any  # what autograd saves between a call and its gradient

_library = torch.library.Library("tremula", "FRAGMENT")
# `keep` is 1 where a weight of attention stays and 0 where it is dropped.
_HOW = "float dropout_p, bool is_causal, float scale"
_library.define(
    f"attention(Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor keep, {_HOW})"
    " -> (Tensor, Tensor)"
)
_library.define(
    "attention_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor? mask,"
    f" Tensor keep, Tensor result, Tensor logsumexp, {_HOW}) -> (Tensor, Tensor, Tensor)"
)

_RANK = 4  # batch, heads, positions, features


def record(  # noqa: PLR0917 - as PyTorch
    attend: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor,
    attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """`scaled_dot_product_attention`, as one operation where PyTorch has one for it on a GPU."""
    with_gradient = attn_mask is not None and attn_mask.requires_grad
    is_plain = all(x.dim() == _RANK for x in (query, key, value)) and not with_gradient
    if not dropout_p or not is_plain or (is_causal and attn_mask is not None):
        return attend(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    shape = (*query.shape[:2], query.shape[2], key.shape[2])
    keep = torch.empty(shape, dtype=computed_type(query), device=query.device)
    keep.bernoulli_(1 - dropout_p)
    mask = _additive(attn_mask, query.dtype)
    return torch.ops.tremula.attention(query, key, value, mask, keep, dropout_p, is_causal, scale)[
        0
    ]


def computed_type(query: Tensor) -> torch.dtype:
    """The type that scores are computed in: PyTorch computes those of halves in float32."""
    return torch.float32 if query.dtype in (torch.float16, torch.bfloat16) else query.dtype


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask that is added to scores, of one that says which positions are visible."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask.logical_not(), -math.inf)


# -- as products and a softmax ---------------------------------------------------------------------


def scores_of(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """Scores in the type they are computed in; both operands take a root of the scale."""
    dtype, root = computed_type(query), math.sqrt(abs(scale))
    left, right = query.to(dtype) * math.copysign(root, scale), key.to(dtype) * root
    scores = left @ right.transpose(-2, -1)
    if is_causal:
        is_visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = torch.where(is_visible, scores, -math.inf)
    return scores if mask is None else scores + mask


def spelled_out(  # noqa: PLR0917 - as PyTorch
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, keep: Tensor,
    dropout_p: float, is_causal: bool, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The result, and the logarithm of each row's sum."""
    scores = scores_of(query, key, mask, is_causal, scale)
    weights = torch.ops.aten._safe_softmax.default(scores, -1)
    dropped = weights * (keep / (1 - dropout_p))
    result = (dropped @ value.to(weights.dtype)).to(query.dtype)
    return result, torch.ops.aten.logsumexp.default(scores.float(), [-1])


def spelled_out_backward(  # noqa: PLR0917 - as PyTorch
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, keep: Tensor,
    _result: Tensor, _logsumexp: Tensor, dropout_p: float, is_causal: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key and value; weights are computed as in the forward pass."""
    scores = scores_of(query, key, mask, is_causal, scale)
    weights = torch.ops.aten._safe_softmax.default(scores, -1)
    noise = keep / (1 - dropout_p)
    dtype = weights.dtype
    gradient = gradient.to(dtype)
    of_weights = (gradient @ value.to(dtype).transpose(-2, -1)) * noise
    of_scores = torch.ops.aten._softmax_backward_data.default(of_weights, weights, -1, dtype)
    of_scores = of_scores * scale
    return (
        (of_scores @ key.to(dtype)).to(query.dtype),
        (of_scores.transpose(-2, -1) @ query.to(dtype)).to(key.dtype),
        ((weights * noise).transpose(-2, -1) @ gradient).to(value.dtype),
    )


def _fake(query: Tensor, _key: Tensor, value: Tensor, *_how: object) -> tuple[Tensor, Tensor]:
    rows = query.shape[:-1]
    return query.new_empty((*rows, value.shape[-1])), query.new_empty(rows, dtype=torch.float32)


def _fake_backward(
    _gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_how: object
) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(x.new_empty(x.shape) for x in (query, key, value))  # pyright: ignore[reportReturnType]


def _save(ctx: Context, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    query, key, value, mask, keep, *ctx.how = inputs
    ctx.save_for_backward(query, key, value, mask, keep, *output)
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Context, gradient: Tensor, _of_sums: Tensor | None) -> tuple:
    backward = torch.ops.tremula.attention_backward
    return *backward(gradient, *ctx.saved_tensors, *ctx.how), None, None, None, None, None


def _save_backward(ctx: Context, inputs: tuple, output: tuple) -> None:  # noqa: ARG001
    *tensors, ctx.dropout_p, ctx.is_causal, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


def _second_gradients(ctx: Context, *gradients: Tensor) -> tuple:
    """Gradients of the gradients, by autograd of the products and the softmax."""
    saved = ctx.saved_tensors
    with torch.enable_grad():
        operands = [x.detach().requires_grad_() for x in saved[:4]]
        gradient, query, key, value = operands
        mask, keep, output, sums = saved[4:]
        results = spelled_out_backward(
            gradient, query, key, value, mask, keep, output, sums,
            ctx.dropout_p, ctx.is_causal, ctx.scale,
        )  # fmt: skip
        result = torch.autograd.grad(results, operands, gradients)
    return *result, *[None] * 7


_library.impl("attention", spelled_out, "CompositeExplicitAutograd")
_library.impl("attention_backward", spelled_out_backward, "CompositeExplicitAutograd")
torch.library.register_fake("tremula::attention", _fake, lib=_library)
torch.library.register_fake("tremula::attention_backward", _fake_backward, lib=_library)
torch.library.register_autograd("tremula::attention", _gradients, setup_context=_save, lib=_library)
torch.library.register_autograd(
    "tremula::attention_backward", _second_gradients, setup_context=_save_backward, lib=_library
)
