"""Pass of the host: attention that was recorded as a CPU's operation, in a form that GPUs have."""

import torch
from torch import Tensor

from tremula.ir.decompositions.attention import attention, attention_backward
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def attend_anywhere(step: CapturedStep) -> CapturedStep:
    """The kernels PyTorch chooses where only results are wanted, products for gradients."""
    targets = {node.target for node in step.graph.nodes}
    forward = attention if _BACKWARD in targets else fused_attention
    for node in step.graph.nodes:
        if node.target is _FORWARD:
            node.target = forward
        elif node.target is _BACKWARD:
            node.target = attention_backward
    return step


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, None]:
    """The result alone: without gradients nobody asks for the rows' sums."""
    result = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    )
    return result, None
