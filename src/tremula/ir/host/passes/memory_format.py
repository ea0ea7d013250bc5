"""Passes of the host: images lie in memory as they come; convolutions use the quicker kernels.

Keras keeps the channels of a pixel side by side, which PyTorch's kernels like, and yet asks for a
copy in the other order before a pooling and for one back before a convolution.
"""

import platform
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.nodes import ints, operand, schema_name, whole
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_IMAGE_RANK = 4
# These read their first operands in any order of dimensions, and hand theirs on.
_READS_ANY_ORDER = {
    "aten::convolution",
    "aten::convolution_backward",
    "aten::max_pool2d_with_indices",
    "aten::max_pool2d_with_indices_backward",
    "aten::avg_pool2d",
    "aten::avg_pool2d_backward",
}
_CONVOLUTIONS = {"aten::convolution", "aten::convolution_backward"}
_VIEWS = (aten.view.default, aten._unsafe_view.default)
_LOOKS_AT_STRIDES = {"aten::as_strided", "aten::new_empty_strided", "aten::empty_strided"}


def leave_images_as_they_lie(step: CapturedStep) -> CapturedStep:
    """Drop copies whose values are the same in another order, where a kernel takes either."""
    nodes = list(step.graph.nodes)
    if any(schema_name(node) in _LOOKS_AT_STRIDES for node in nodes):
        return step
    copies = [node for node in nodes if _is_reordered_image(node)]
    for node in copies:
        source = operand(node)
        while _is_reordered_image(source):
            source = operand(source)
        if _is_by_pixels(source) and not _users(node) <= _CONVOLUTIONS:
            node.replace_all_uses_with(source)
        else:  # at run time a copy only if it lies otherwise
            node.target, node.args = aten.contiguous.default, (source,)
    for node in reversed(copies):
        if not node.users:
            step.graph.erase_node(node)
    return _with_free_views(step) if copies else step


def _is_reordered_image(node: fx.Node) -> bool:
    """A copy for the sake of its order, read only by operations that take any."""
    if node.target is not aten.clone.default or node.meta["val"].dim() != _IMAGE_RANK:
        return False
    has_order = node.kwargs.get("memory_format") in (torch.contiguous_format, torch.channels_last)
    readers = [user for user in node.users if not _is_copy(user)]
    return has_order and all(schema_name(user) in _READS_ANY_ORDER for user in readers)


def _is_copy(node: fx.Node) -> bool:
    return node.target is aten.clone.default and "memory_format" in node.kwargs


def _users(node: fx.Node) -> set[str]:
    return {schema_name(user) for user in node.users}


def _is_by_pixels(node: fx.Node) -> bool:
    return node.meta["val"].is_contiguous(memory_format=torch.channels_last)


def _with_free_views(step: CapturedStep) -> CapturedStep:
    """Strides are no longer those that were recorded: views become reshapes, which may copy."""
    for node in list(step.graph.nodes):
        if node.target not in _VIEWS:
            continue
        node.target = aten.reshape.default
        source = operand(node)
        if _is_copy(source) and len(source.users) == 1:  # made for this view alone
            node.args = (operand(source), *node.args[1:])
            step.graph.erase_node(source)
    return step


# -- gradients of convolutions ---------------------------------------------------------------------


def differentiate_by_forward_kernels(step: CapturedStep) -> CapturedStep:
    """On 64-bit ARM, where only convolutions forward are tuned, gradients are made of those."""
    if platform.machine() == "aarch64" and torch.backends.mkldnn.is_available():
        for node in step.graph.nodes:
            if node.target is aten.convolution_backward.default and _is_plain(node):
                node.target = plain_convolution_gradients
    return step


def _is_plain(node: fx.Node) -> bool:
    """Of images in float32, by steps of one pixel."""
    _, _, _, _, stride, padding, dilation, transposed, _, groups, _ = node.args
    value: Tensor = operand(node, 2).meta["val"]
    kernel = value.shape[2:]
    return (
        value.dim() == _IMAGE_RANK
        and value.dtype is torch.float32
        and not transposed
        and whole(groups) == 1
        and ints(stride) == ints(dilation) == [1, 1]
        and all(p < k for p, k in zip(ints(padding), kernel, strict=True))
    )


def plain_convolution_gradients(
    gradient: Tensor,
    image: Tensor,
    weight: Tensor,
    *rest: Any,  # noqa: ANN401
) -> tuple[Tensor | None, ...]:
    """What `aten::convolution_backward` gives; the image's gradient is a convolution, too."""
    _, _, padding, *_, (of_image, of_weight, of_bias) = rest
    first = _gradient_of_image(gradient, weight, padding) if of_image else None
    if tuple(weight.shape[2:]) == (1, 1) and not of_bias:
        product = _by_pixels(gradient).t() @ _by_pixels(image)
        return first, product.view(weight.shape), None
    wanted = [False, of_weight, of_bias]
    result = aten.convolution_backward.default(gradient, image, weight, *rest[:-1], wanted)
    return first, *result[1:]


def _gradient_of_image(gradient: Tensor, weight: Tensor, padding: Sequence[int]) -> Tensor:
    turned = weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
    reach = [k - 1 - p for k, p in zip(weight.shape[2:], padding, strict=True)]
    return torch.conv2d(gradient, turned, None, padding=reach)


def _by_pixels(image: Tensor) -> Tensor:
    """A row of channels for each pixel."""
    return image.permute(0, 2, 3, 1).reshape(-1, image.shape[1])
