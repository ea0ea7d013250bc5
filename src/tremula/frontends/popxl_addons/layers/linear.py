"""x @ weight + bias."""

from functools import partial
from typing import Any

import numpy as np

import popxl
from tremula.frontends.popxl.dtypes import to_array as to_numpy
from tremula.frontends.popxl_addons.graphs.module import Module
from tremula.frontends.popxl_addons.layers.initialisers import truncated_normal
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.utils import WeightsDict

Grouping = popxl.ReplicaGrouping | None


class Linear(Module):
    """x @ weight + bias, with a weight [in, out]."""

    def __init__(self, out_features: int, bias: bool = True, replica_grouping: Grouping = None):
        super().__init__()
        self.out_features, self.bias = out_features, bias
        self.replica_grouping = replica_grouping

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[…, in] → […, out]."""
        shape, group = (x.shape[-1], self.out_features), self.replica_grouping
        weight = self.add_variable_input(
            "weight", partial(truncated_normal, shape), x.dtype, replica_grouping=group
        )
        y = x @ weight
        if not self.bias:
            return y
        bias = self.add_variable_input(
            "bias", partial(np.zeros, shape[1]), x.dtype, replica_grouping=group
        )
        return y + bias

    @staticmethod
    def torch_mapping(
        variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32
    ) -> WeightsDict:
        """Values of the variables from a torch.nn.Linear, whose weight is [out, in]."""
        weights = {variables.weight: to_numpy(nn_layer.weight.data, dtype).T}
        if "bias" in variables:
            weights[variables.bias] = to_numpy(nn_layer.bias.data, dtype)
        return WeightsDict(weights)
