"""Pass of the host on a GPU: attention by PyTorch's fused kernels, forwards and backwards.

Attention is recorded as one operation: PyTorch's for CPUs without dropout, `tremula::attention`
with it. Each becomes the kernel that is fastest for its types and shapes; what no kernel takes is
products and a softmax, with aligned rows for tensor cores.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.decompositions.attention import attention, attention_backward
from tremula.ir.host.passes.aligned_attention import ALIGNED, needs_more_keys
from tremula.ir.host.passes.constant_masks import CAUSAL, ConstantMasks
from tremula.ir.nodes import HALF_TYPES, operand
from tremula.ir.ops.attention import spelled_out, spelled_out_backward
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_PLAIN = aten._scaled_dot_product_flash_attention_for_cpu.default
_PLAIN_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_DROPPING = torch.ops.tremula.attention.default
_DROPPING_BACKWARD = torch.ops.tremula.attention_backward.default

# Names of PyTorch's kernels.
FLASH, CUDNN, EFFICIENT = "flash", "cudnn", "efficient"
_LARGEST_HEAD = 256  # features, of flash attention
_ALIGNED = 8  # features: kernels read 16 bytes at a time
_MASK_ALIGNED = 16  # numbers of a row of a mask


@dataclass(frozen=True)
class _Call:
    """A call of attention: its operands and how it is computed."""

    query: fx.Node
    key: fx.Node
    value: fx.Node
    mask: fx.Node | None
    keep: fx.Node | None  # the mask of dropout
    dropout_p: float
    is_causal: bool
    scale: float | None

    @property
    def operands(self) -> tuple[fx.Node, fx.Node, fx.Node, fx.Node | None]:
        return self.query, self.key, self.value, self.mask

    @property
    def how(self) -> tuple[float, bool, float | None]:
        return self.dropout_p, self.is_causal, self.scale


def fuse_attention(step: CapturedStep) -> CapturedStep:
    """Replace every attention that is differentiated; one that is not is left to PyTorch."""
    backward_of, masks = _gradients(step.graph), ConstantMasks(step)
    for node in list(step.graph.nodes):
        if node.target not in (_PLAIN, _DROPPING):
            continue
        call = _without_known_mask(_forward_call(node), masks)
        kernel = fused_kernel(call) if backward_of.get(node) else None
        if kernel is not None:
            _use_kernel(step.graph, kernel, node, call, backward_of[node])
        else:
            needs_more = needs_more_keys(call.key.meta["val"])
            _use_operations(node, backward_of.get(node, []), needs_more)
    return step


def _gradients(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """The backward calls of each forward call: those that read its result."""
    backward: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.target in _RESULT_OF:
            result = operand(node, _RESULT_OF[node.target])
            backward.setdefault(operand(result), []).append(node)
    return backward


_RESULT_OF: dict[Any, int] = {_PLAIN_BACKWARD: 4, _DROPPING_BACKWARD: 6}  # position of the result


def _forward_call(node: fx.Node) -> _Call:
    if node.target is _DROPPING:
        return _Call(*node.args)  # pyright: ignore[reportArgumentType]
    query, key, value, *how = node.args
    dropout_p, is_causal = (*how, *(0.0, False)[len(how) :])
    mask, scale = node.kwargs.get("attn_mask"), node.kwargs.get("scale")
    return _Call(query, key, value, mask, None, dropout_p, is_causal, scale)  # pyright: ignore[reportArgumentType]


def _without_known_mask(call: _Call, masks: ConstantMasks) -> _Call:
    """A call whose mask, if it is known to be causal or empty, is said by `is_causal` instead."""
    hidden = masks.hidden_by(call.mask) if call.mask is not None and not call.is_causal else ""
    return replace(call, mask=None, is_causal=hidden == CAUSAL) if hidden else call


# -- which kernel ----------------------------------------------------------------------------------


def fused_kernel(call: _Call) -> str | None:
    """The kernel for a call; None if there is none, or if products are faster."""
    query, key, value = (node.meta["val"] for node in (call.query, call.key, call.value))
    n_features = query.shape[-1]
    # For floats products and a softmax are faster than the memory-efficient kernel, also with rows
    # that are not aligned: a step of ViT-B, with 197 keys, took 27.96 ms, with the kernel 28.54.
    if query.dtype not in HALF_TYPES or n_features % _ALIGNED or value.shape[-1] != n_features:
        return None
    if call.keep is not None and not _is_drawn_for(call.keep):
        return None
    is_square = query.shape[-2] == key.shape[-2]
    if call.mask is None and n_features <= _LARGEST_HEAD and (is_square or not call.is_causal):
        return FLASH
    return EFFICIENT if query.shape[1] == key.shape[1] else None


def _is_drawn_for(keep: fx.Node) -> bool:
    """Whether a mask is drawn by PyTorch, and read by attention alone: a kernel may draw it."""
    readers = {user.target for user in keep.users}
    return keep.target is aten.bernoulli.p and readers <= {_DROPPING, _DROPPING_BACKWARD}


# -- what replaces a call --------------------------------------------------------------------------


def _use_kernel(
    graph: fx.Graph, kernel: str, node: fx.Node, call: _Call, backward: list[fx.Node]
) -> None:
    node.target = fused_forward
    node.args, node.kwargs = (kernel, *call.operands, *call.how), {}
    saved = []
    with graph.inserting_after(node):
        for index in reversed(range(4)):
            saved.insert(0, graph.call_function(operator.getitem, (node, index)))
    for gradient in backward:
        gradient.target = fused_backward
        arguments = (kernel, gradient.args[0], *call.operands, *saved, *call.how)
        gradient.args, gradient.kwargs = arguments, {}


def _use_operations(node: fx.Node, backward: list[fx.Node], needs_more_keys: bool) -> None:
    """Products and a softmax; for results alone, what PyTorch chooses."""
    if node.target is _DROPPING:
        node.target = spelled_out
    else:
        node.target = attention if backward else _chosen_by_pytorch
    for gradient in backward:
        is_plain = gradient.target is _PLAIN_BACKWARD
        gradient.target = attention_backward if is_plain else spelled_out_backward
    if needs_more_keys:
        for some in node, *backward:
            if some.target in ALIGNED:
                some.target = ALIGNED[some.target]


def _chosen_by_pytorch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, None]:
    """The result alone: only gradients need the sums of rows."""
    result = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal,
        scale=scale, enable_gqa=query.shape[1] != key.shape[1],
    )  # fmt: skip
    return result, None


Saved = tuple[Tensor, Tensor, Tensor, Tensor]  # result, sums of rows, seed and offset of the draws


def fused_forward(  # noqa: PLR0917 - as PyTorch
    kernel: str, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    dropout_p: float, is_causal: bool, scale: float | None,
) -> Saved:  # fmt: skip
    """The result, and what its gradient needs."""
    tensors, how = (query, key, value), (dropout_p, is_causal)
    if kernel == FLASH:
        run: Callable = aten._scaled_dot_product_flash_attention.default
        result, sums, _, _, _, _, seed, offset, _ = run(*tensors, *how, False, scale=scale)
        return result, sums, seed, offset
    mask = None if mask is None else _full_mask(mask, query, key)
    if kernel == CUDNN:
        run = aten._scaled_dot_product_cudnn_attention.default
        result, sums, _, _, _, _, seed, offset, _ = run(
            *tensors, mask, True, *how, False, scale=scale
        )
        return result, sums, seed, offset
    run = aten._scaled_dot_product_efficient_attention.default
    return run(*tensors, mask, True, *how, scale=scale)


def fused_backward(  # noqa: PLR0913, PLR0917 - as PyTorch
    kernel: str, gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    result: Tensor, sums: Tensor, seed: Tensor, offset: Tensor,
    dropout_p: float, is_causal: bool, scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key and value."""
    tensors, saved, how = (gradient, query, key, value), (result, sums), (dropout_p, is_causal)
    lengths = (None, None, query.shape[-2], key.shape[-2])  # all sequences are equally long
    if kernel == FLASH:
        run: Callable = aten._scaled_dot_product_flash_attention_backward.default
        return run(*tensors, *saved, *lengths, *how, seed, offset, scale=scale)
    mask = None if mask is None else _full_mask(mask, query, key)
    if kernel == CUDNN:
        run = aten._scaled_dot_product_cudnn_attention_backward.default
        return run(*tensors, *saved, seed, offset, mask, *lengths, *how, scale=scale)
    run = aten._scaled_dot_product_efficient_attention_backward.default
    wanted = [True, True, True, False]
    return run(*tensors, mask, *saved, seed, offset, dropout_p, wanted, is_causal, scale=scale)[:3]


def _full_mask(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A mask of all dimensions, whose rows begin at addresses that kernels can read."""
    n = key.shape[-2]
    if n % _MASK_ALIGNED:
        mask = torch.nn.functional.pad(mask, (0, -n % _MASK_ALIGNED))[..., :n]
    return mask.to(query.dtype).expand(*query.shape[:-1], n)
