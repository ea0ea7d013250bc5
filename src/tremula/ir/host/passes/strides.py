"""How tensors lie in memory: what convolutions on a GPU and products of one row on a CPU want."""

import torch
from torch import Tensor

from tremula.ir.step import PARAMETER, CapturedStep

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


# The place of the weights in a product of matrices.
_RIGHT = {aten.mm.default: 1, aten.addmm.default: 2}


def held_by_columns(step: CapturedStep, device: torch.device) -> frozenset[int]:
    """Weights that are best held column by column, by the place among the parameters.

    A product of one row is a sum over columns of dot products: a CPU reads each column in one go,
    twice as fast as it adds up rows. Steps that generate word by word consist of little else.
    """
    if device.type != "cpu" or step.rule is not None:
        return frozenset()
    nodes = [node for node in step.graph.nodes if node.op == "placeholder"]
    return frozenset(
        slot.index
        for place, slot in step.of_kind(PARAMETER)
        if nodes[place].users and all(_is_row_product(u, nodes[place]) for u in nodes[place].users)
    )


def _is_row_product(user: torch.fx.Node, weight: torch.fx.Node) -> bool:
    place = _RIGHT.get(user.target)  # pyright: ignore[reportArgumentType]
    if place is None or user.args[place] is not weight:
        return False
    return user.meta["val"].shape[0] == 1 and weight not in user.args[:place]


def by_columns(value: Tensor) -> Tensor:
    """The same matrix, each column in one piece."""
    return value.t().contiguous().t()


def let_strides_be_free(step: CapturedStep) -> CapturedStep:
    """Where strides are not those that were recorded, `view` may be impossible: reshape."""
    for node in step.graph.nodes:
        if node.target in _VIEWS:
            node.target = aten.reshape.default
    return step
