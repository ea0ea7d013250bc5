"""Layer norms, of whole rows or of rows that a group of replicas shares, and group norms."""

from functools import partial
from typing import Any

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl.dtypes import to_array as to_numpy
from tremula.frontends.popxl_addons.graphs.module import Module
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.ops.norms import layer_norm_distributed
from tremula.frontends.popxl_addons.utils import WeightsDict

Grouping = popxl.ReplicaGrouping | None


def _weight_and_bias(
    module: Module, n: int, dtype: popxl.dtype, group: Grouping
) -> tuple[popxl.Tensor, popxl.Tensor]:
    weight, bias = (
        module.add_variable_input(name, partial(fill, n), dtype, replica_grouping=group)
        for name, fill in (("weight", np.ones), ("bias", np.zeros))
    )
    return weight, bias


def _torch_weights(variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype) -> WeightsDict:
    """Weight and bias of a layer of PyTorch, in the shapes of the variables."""
    return WeightsDict(
        {
            variables[name]: to_numpy(
                getattr(nn_layer, name).data.reshape(variables[name].shape), dtype
            )
            for name in ("weight", "bias")
        }
    )


class LayerNorm(Module):
    """A layer norm over the last dimension."""

    def build(self, x: popxl.Tensor, eps: float = 1e-5) -> popxl.Tensor:
        """[N, C] → [N, C]."""
        if x.rank != 2:
            raise ValueError(
                f"The input tensor must be of shape N x C, got {x.shape}: flatten extra dimensions"
            )
        weight, bias = _weight_and_bias(self, x.shape[-1], x.dtype, None)
        return ops.layer_norm(x, weight, bias, eps)

    @staticmethod
    def torch_mapping(
        variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32
    ) -> WeightsDict:
        """Values of the variables from a torch.nn.LayerNorm; several dimensions are flattened."""
        return _torch_weights(variables, nn_layer, dtype)


class LayerNormDistributed(Module):
    """A layer norm of rows of which each member of a group of replicas has some columns."""

    def __init__(self, replica_grouping: Grouping = None):
        super().__init__()
        self.replica_grouping = replica_grouping

    def build(self, x: popxl.Tensor, eps: float = 1e-5) -> popxl.Tensor:
        """[N, C / members] → [N, C / members]."""
        whole: popxl.ReplicaGrouping = popxl.gcg().ir.replica_grouping()
        group = whole if self.replica_grouping is None else self.replica_grouping
        weight, bias = _weight_and_bias(self, x.shape[-1], x.dtype, group.transpose())
        return layer_norm_distributed(x, weight, bias, eps, group)


class GroupNorm(Module):
    """A group norm of [N, C, …]: channels in `num_groups` groups."""

    def __init__(
        self,
        num_groups: int,
        replica_grouping: Grouping = None,
        eps: float = 1e-5,
        cache: bool = False,
    ):
        super().__init__(cache)
        self.num_groups, self.replica_grouping, self.eps = num_groups, replica_grouping, eps

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[N, C, …] → [N, C, …]."""
        weight, bias = _weight_and_bias(self, x.shape[1], x.dtype, self.replica_grouping)
        return ops.group_norm(x, weight, bias, num_groups=self.num_groups, eps=self.eps)

    @staticmethod
    def torch_mapping(
        variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32
    ) -> WeightsDict:
        """Values of the variables from a torch.nn.GroupNorm."""
        return _torch_weights(variables, nn_layer, dtype)
