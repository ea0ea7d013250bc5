"""Attention by products whose rows of scores begin at multiples of 16 bytes.

Tensor cores need that for their fast kernels. A number of keys that is odd, such as the 197 of a
vision transformer, is rounded up: keys and values get rows of zeros, which a mask hides, so scores
and weights are aligned in all five products without a copy of either.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from tremula.ir.decompositions.attention import attention, attention_backward
from tremula.ir.host.passes.pad_products import ALIGNED_BYTES

_FEWEST_KEYS = 64  # with fewer, rounding up may add more than a ninth to scores in halves


def needs_more_keys(key: Tensor) -> bool:
    """Whether scores would not be aligned, and tensor cores multiply numbers of this type."""
    n = key.shape[-2]
    is_rounded = torch.get_float32_matmul_precision() != "highest"
    on_tensor_cores = key.dtype.itemsize == 2 or (key.dtype is torch.float32 and is_rounded)
    return on_tensor_cores and n >= _FEWEST_KEYS and bool(_n_more(key))


def aligned_attention(
    query: Tensor, key: Tensor, value: Tensor, *how: Any,  # noqa: ANN401 - as attention takes them
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`attention`, with more keys."""
    more_keys, more_values, mask = _with_more_keys(key, value, attn_mask)
    return attention(query, more_keys, more_values, *how, attn_mask=mask, scale=scale)


def aligned_attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *how: Any,  # noqa: ANN401
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`attention_backward`, with more keys, whose gradients are cut off."""
    n = key.shape[-2]
    more_keys, more_values, mask = _with_more_keys(key, value, attn_mask)
    of_query, of_keys, of_values = attention_backward(
        gradient, query, more_keys, more_values, *how, attn_mask=mask, scale=scale
    )
    return of_query, of_keys[..., :n, :], of_values[..., :n, :]


ALIGNED: dict[object, Callable] = {
    attention: aligned_attention,
    attention_backward: aligned_attention_backward,
}


def _n_more(key: Tensor) -> int:
    return -key.shape[-2] % (ALIGNED_BYTES // key.dtype.itemsize)


def _with_more_keys(
    key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values with rows of zeros, and the mask that is added to scores and hides them."""
    n, more = key.shape[-2], _n_more(key)
    if mask is None:
        is_key = torch.arange(n + more, device=key.device) < n
        mask = torch.zeros(n + more, dtype=key.dtype, device=key.device)
        mask = mask.masked_fill(~is_key, -math.inf)
    else:
        mask = pad(mask.expand(*mask.shape[:-1], n), (0, more), value=-math.inf)
    return pad(key, (0, 0, 0, more)), pad(value, (0, 0, 0, more)), mask
