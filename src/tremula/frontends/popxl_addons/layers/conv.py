"""Convolutions of images."""

from functools import partial
from typing import Any

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl.dtypes import to_array as to_numpy
from tremula.frontends.popxl_addons.graphs.module import Module
from tremula.frontends.popxl_addons.layers.initialisers import truncated_normal
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.utils import WeightsDict


class Conv2D(Module):
    """A convolution of [N, C, H, W], with a bias for each output channel.

    `paddings` are numbers (low of H and W, then high), or "same_upper", "same_lower" or "valid".
    The proportions, partials and dithering go to `ops.conv`.
    """

    def __init__(
        self,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        strides: tuple[int, ...] = (1, 1),
        paddings: str | tuple[int, ...] = (0, 0, 0, 0),
        dilations: tuple[int, ...] = (1, 1),
        groups: int = 1,
        bias: bool = True,
        available_memory_proportions: list[float] | None = None,
        partials_types: list[str] | None = None,
        enable_conv_dithering: list[int] | None = None,
        replica_grouping: popxl.ReplicaGrouping | None = None,
    ):
        super().__init__()
        self.out_channels, self.groups, self.bias = out_channels, groups, bias
        is_pair = isinstance(kernel_size, tuple | list)
        self.kernel = tuple(kernel_size) if is_pair else (kernel_size, kernel_size)
        self.strides, self.dilations = tuple(strides), tuple(dilations)
        is_named = isinstance(paddings, str)
        self.pad_type = paddings if is_named else "not_set"
        self.paddings = (0, 0, 0, 0) if is_named else tuple(paddings)
        self.tuning = {
            "available_memory_proportions": available_memory_proportions,
            "partials_types": partials_types,
            "enable_conv_dithering": enable_conv_dithering,
        }
        self.replica_grouping = replica_grouping

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[N, C, H, W] → [N, out, H', W']."""
        if x.rank != 4:
            raise ValueError(f"Conv2D takes images [N, C, H, W], got {x.shape}")
        shape = (self.out_channels, x.shape[1] // self.groups, *self.kernel)
        weight = self.add_variable_input(
            "weight", partial(truncated_normal, shape), x.dtype,
            replica_grouping=self.replica_grouping,
        )  # fmt: skip
        y = ops.conv(
            x, weight, self.strides, self.paddings, self.dilations, self.groups, self.pad_type,
            **self.tuning,
        )  # fmt: skip
        if not self.bias:
            return y
        return y + self.add_variable_input(
            "bias", partial(np.zeros, (1, self.out_channels, 1, 1)), x.dtype,
            replica_grouping=self.replica_grouping,
        )  # fmt: skip

    @staticmethod
    def torch_mapping(
        variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32
    ) -> WeightsDict:
        """Values of the variables from a torch.nn.Conv2d."""
        weights = {variables.weight: to_numpy(nn_layer.weight.data, dtype)}
        if "bias" in variables:
            shape = variables.bias.shape
            weights[variables.bias] = to_numpy(nn_layer.bias.data.reshape(shape), dtype)
        return WeightsDict(weights)
