"""Linear layers in few bits: 8-bit floats both ways, or weights of 4 bits."""

from functools import partial

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.graphs.module import Module
from tremula.frontends.popxl_addons.ops.fp8_scales import fp8_amax_scale, fp8_mse_scale
from tremula.frontends.popxl_addons.ops.group_quantised import (
    CODES_PER_WORD,
    group_quantize_decompress,
)

Grouping = popxl.ReplicaGrouping | None
Scaled = tuple[popxl.Tensor, popxl.Tensor]
METRICS = ("amax", "mse", "manual_scale")
# Powers of two that gradients stay below the range: their sums in float16 must not overflow.
GRADIENT_MARGIN = 3
WEIGHT_DEVIATION = 0.02


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
        self.out_features, self.has_bias, self.group = out_features, bias, replica_grouping
        self.scale_metric, self.scale = scale_metric, scale

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[N, in] → [N, out]."""
        if x.rank != 2:
            raise ValueError(f"LinearFP8 takes rows [N, C], got {x.shape}: reshape them")
        shape = (x.shape[1], self.out_features)
        weight = self.add_variable_input(
            "weight", partial(_normal, shape), x.dtype, replica_grouping=self.group
        )
        rows, columns = (self._rounded(t, popxl.float8_143) for t in (x, weight))
        self.aux.update(x=rows[0], x_scale=rows[1], w=columns[0], w_scale=columns[1])
        y = _product(rows, columns, x.dtype)
        if not self.has_bias:
            return y
        return y + self.add_variable_input(
            "bias", partial(np.zeros, shape[1]), x.dtype, replica_grouping=self.group
        )

    def build_grad(self, dy: popxl.Tensor) -> popxl.Tensor:
        """Gradients of rows and weights, from 8-bit floats with more exponent."""
        codes, scale = self._rounded(dy, popxl.float8_152, GRADIENT_MARGIN)
        rows = (ops.transpose(self.aux["x"]), self.aux["x_scale"])
        columns = (ops.transpose(self.aux["w"]), self.aux["w_scale"])
        self.var_grad["weight"] = _product(rows, (codes, scale), dy.dtype)
        if self.has_bias:
            self.var_grad["bias"] = ops.sum(dy, [0])
        return _product((codes, scale), columns, dy.dtype)

    def _rounded(self, t: popxl.Tensor, dtype: popxl.dtype, margin: int = 0) -> Scaled:
        """A tensor as 8-bit floats, and the power of two that it was multiplied by."""
        if self.scale_metric == "amax":
            scale = fp8_amax_scale(t, dtype) - margin
        elif self.scale_metric == "mse":
            scale = fp8_mse_scale(t, dtype) - margin
        else:
            scale = popxl.constant(self.scale, popxl.int32, "scale")
        return ops.pow2scale_cast_to_fp8(t, scale, dtype), scale


def _product(a: Scaled, b: Scaled, dtype: popxl.dtype) -> popxl.Tensor:
    """Of 8-bit floats, without their scales."""
    result = ops.matmul_pow2scaled(a[0], b[0], ops.negate(a[1] + b[1]))
    return result if result.dtype == dtype else ops.cast(result, dtype)


def _normal(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng().normal(0, WEIGHT_DEVIATION, shape).astype(np.float32)


class LinearGQ(Module):
    """x @ weight + bias with a weight of 4 bits, decompressed where it is used.

    Variables are zeros: write what `group_quantize_compress_numpy` makes of a weight [in, out].
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        replica_grouping: Grouping = None,
        group_size: int = 64,
    ):
        super().__init__()
        if group_size < 1 or group_size % CODES_PER_WORD or out_features % group_size:
            raise ValueError(
                f"group_size must be a multiple of {CODES_PER_WORD} that divides out_features,"
                f" {out_features}, got {group_size}"
            )
        self.out_features, self.has_bias = out_features, bias
        self.group, self.group_size = replica_grouping, group_size

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[…, in] → […, out]."""
        groups = (x.shape[-1], self.out_features // self.group_size)
        words = self._zeros(
            "weight_compressed", (*groups, self.group_size // CODES_PER_WORD), popxl.uint16
        )
        scale = self._zeros("weight_decompression_scale", (*groups, 1), x.dtype)
        offset = self._zeros("weight_decompression_bias", (*groups, 1), x.dtype)
        y = x @ group_quantize_decompress(words, scale, offset)
        return y + self._zeros("bias", (self.out_features,), x.dtype) if self.has_bias else y

    def _zeros(self, name: str, shape: tuple[int, ...], dtype: popxl.dtype) -> popxl.Tensor:
        data = partial(np.zeros, shape)
        return self.add_variable_input(name, data, dtype, replica_grouping=self.group)
