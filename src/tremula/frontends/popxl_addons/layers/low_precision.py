"""Linear layers in few bits: 8-bit floats both ways, or weights of 4 bits."""

from functools import partial
from typing import Any

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl.dtypes import to_array as to_numpy
from tremula.frontends.popxl_addons.graphs.module import Module
from tremula.frontends.popxl_addons.layers.initialisers import truncated_normal
from tremula.frontends.popxl_addons.layers.linear import Linear
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.ops.fp8_scales import fp8_amax_scale, fp8_mse_scale
from tremula.frontends.popxl_addons.ops.group_quantised import (
    CODES_PER_WORD,
    group_quantize_compress_numpy,
    group_quantize_decompress,
)
from tremula.frontends.popxl_addons.utils import WeightsDict

Grouping = popxl.ReplicaGrouping | None
Scaled = tuple[popxl.Tensor, popxl.Tensor]
METRICS = ("amax", "mse", "manual_scale")
# Powers of two that gradients stay below the range: their sums in float16 must not overflow.
GRADIENT_MARGIN = 3


class LinearFP8(Module):
    """x @ weight + bias; rows, weights and gradients are rounded to 8-bit floats before products.

    `scale_metric` "amax" brings each tensor to the upper end of its format's range, "mse" to where
    it loses least; "manual_scale" multiplies by 2^scale.
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        scale_metric: str = "amax",
        scale: int = 0,
        replica_grouping: Grouping = None,
    ):
        super().__init__()
        if scale_metric not in METRICS:
            raise ValueError(f"scale_metric must be one of {METRICS}, got {scale_metric!r}")
        self.out_features, self.bias = out_features, bias
        self.replica_grouping = replica_grouping
        self.scale_metric, self.scale = scale_metric, scale

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[N, in] → [N, out]."""
        if x.rank != 2:
            raise ValueError(f"LinearFP8 takes rows [N, C], got {x.shape}: reshape them")
        shape = (x.shape[1], self.out_features)
        weight = self.add_variable_input(
            "weight", partial(truncated_normal, shape), x.dtype,
            replica_grouping=self.replica_grouping,
        )  # fmt: skip
        rows, columns = (self._rounded(t, popxl.float8_143) for t in (x, weight))
        self.aux.update(x=rows[0], x_scale=rows[1], w=columns[0], w_scale=columns[1])
        y = _product(rows, columns, x.dtype)
        if not self.bias:
            return y
        return y + self.add_variable_input(
            "bias", partial(np.zeros, shape[1]), x.dtype, replica_grouping=self.replica_grouping
        )

    def build_grad(self, dLdy: popxl.Tensor) -> popxl.Tensor:
        """Gradients of rows and weights, from 8-bit floats with more exponent."""
        codes, scale = self._rounded(dLdy, popxl.float8_152, GRADIENT_MARGIN)
        rows = (ops.transpose(self.aux["x"]), self.aux["x_scale"])
        columns = (ops.transpose(self.aux["w"]), self.aux["w_scale"])
        self.var_grad["weight"] = _product(rows, (codes, scale), dLdy.dtype)
        if self.bias:
            self.var_grad["bias"] = ops.sum(dLdy, [0])
        return _product((codes, scale), columns, dLdy.dtype)

    def _rounded(self, t: popxl.Tensor, dtype: popxl.dtype, margin: int = 0) -> Scaled:
        """A tensor as 8-bit floats, and the power of two that it was multiplied by."""
        if self.scale_metric == "amax":
            scale = fp8_amax_scale(t, dtype) - margin
        elif self.scale_metric == "mse":
            scale = fp8_mse_scale(t, dtype) - margin
        else:
            scale = popxl.constant(self.scale, popxl.int32, "scale")
        return ops.pow2scale_cast_to_fp8(t, scale, dtype), scale

    @staticmethod
    def torch_mapping(
        variables: NamedTensors, nn_layer: Any, dtype: popxl.dtype = popxl.float32
    ) -> WeightsDict:
        """Values of the variables from a torch.nn.Linear."""
        return Linear.torch_mapping(variables, nn_layer, dtype)


def _product(a: Scaled, b: Scaled, dtype: popxl.dtype) -> popxl.Tensor:
    """Of 8-bit floats, without their scales."""
    result = ops.matmul_pow2scaled(a[0], b[0], ops.negate(a[1] + b[1]))
    return result if result.dtype == dtype else ops.cast(result, dtype)


class LinearGQ(Module):
    """x @ weight + bias with a weight of 4 bits, decompressed where it is used.

    Groups of `group_size` neighbours along dimension `dim` of the weight [in, out] have a scale and
    a bias. Variables are zeros: write what `torch_mapping` makes of a layer, or
    `group_quantize_compress_numpy` of a weight.
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        replica_grouping: Grouping = None,
        group_size: int = 0,
        dim: int = -1,
    ):
        super().__init__()
        if group_size < 1 or group_size % CODES_PER_WORD:
            raise ValueError(
                f"group_size must be a positive multiple of {CODES_PER_WORD}, got {group_size}"
            )
        if dim not in (-2, -1, 0, 1):
            raise ValueError(f"dim is 0 or 1, a dimension of the weight [in, out], got {dim}")
        self.out_features, self.bias = out_features, bias
        self.replica_grouping, self.group_size = replica_grouping, group_size
        self.dim = dim % 2

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[…, in] → […, out]."""
        sizes = (x.shape[-1], self.out_features)
        n_rows, n_grouped = sizes[1 - self.dim], sizes[self.dim]
        if n_grouped % self.group_size:
            raise ValueError(
                f"group_size must divide dimension {self.dim} of the weight {sizes},"
                f" got {self.group_size}"
            )
        groups = (n_rows, n_grouped // self.group_size)
        words = self._zeros(
            "weight_compressed", (*groups, self.group_size // CODES_PER_WORD), popxl.uint16
        )
        scale = self._zeros("weight_decompression_scale", (*groups, 1), x.dtype)
        offset = self._zeros("weight_decompression_bias", (*groups, 1), x.dtype)
        y = x @ group_quantize_decompress(words, scale, offset, self.dim - 2)
        return y + self._zeros("bias", (self.out_features,), x.dtype) if self.bias else y

    def _zeros(self, name: str, shape: tuple[int, ...], dtype: popxl.dtype) -> popxl.Tensor:
        data = partial(np.zeros, shape)
        return self.add_variable_input(name, data, dtype, replica_grouping=self.replica_grouping)

    @staticmethod
    def torch_mapping(
        variables: NamedTensors,
        nn_layer: Any,
        dtype: popxl.dtype = popxl.float32,
        group_size: int = 64,
        dim: int = -1,
    ) -> WeightsDict:
        """Values of the variables from a torch.nn.Linear, compressed."""
        weight = nn_layer.weight.detach().numpy().T
        words, scale, offset = group_quantize_compress_numpy(weight, group_size, dim)
        weights = {
            variables.weight_compressed: words,
            variables.weight_decompression_scale: to_numpy(scale, dtype),
            variables.weight_decompression_bias: to_numpy(offset, dtype),
        }
        if "bias" in variables:
            weights[variables.bias] = to_numpy(nn_layer.bias.data, dtype)
        return WeightsDict(weights)
