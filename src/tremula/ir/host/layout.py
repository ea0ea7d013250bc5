"""How tensors lie in memory: on a GPU convolutions want the channels of a pixel side by side."""

import torch
from torch import Tensor

from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_IMAGE_RANK = 4
_VIEWS = (aten.view.default, aten._unsafe_view.default)


def image_format(step: CapturedStep, device: torch.device) -> torch.memory_format:
    """The format of weights and states with the rank of an image; operations hand it on."""
    has_images = any(
        node.target is aten.convolution.default and node.meta["val"].dim() == _IMAGE_RANK
        for node in step.graph.nodes
    )
    is_on_gpu = device.type == "cuda"
    return torch.channels_last if has_images and is_on_gpu else torch.preserve_format


def on_device(value: Tensor, device: torch.device, images: torch.memory_format) -> Tensor:
    """A copy on a device, in the format of images if it may be one."""
    is_image = value.dim() == _IMAGE_RANK
    form = images if is_image else torch.preserve_format
    return value.detach().to(device, copy=True, memory_format=form)


def let_strides_be_free(step: CapturedStep) -> CapturedStep:
    """Where strides are not those that were recorded, `view` may be impossible: reshape."""
    for node in step.graph.nodes:
        if node.target in _VIEWS:
            node.target = aten.reshape.default
    return step
