"""Layers that only PopTorch has: sparse weights and products of 8-bit floats.

In float64, which only the reference computes in, each is its formula on dense tensors.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch
from tools.fuzz.case import IllegalCase
from tools.fuzz.expressions.reference import fp8_rounded


class SparseRows(nn.Module):
    """A linear layer with values in some blocks of its weight only."""

    def __init__(self, n_in: int, n_out: int, density: float, block: int):
        super().__init__()
        if n_in % block or n_out % block:
            raise IllegalCase(f"blocks of {block}")
        self.inner = poptorch.sparse.SparseLinear(n_in, n_out, density, block)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype is not torch.float64:
            return self.inner(x)
        return functional.linear(x, self._dense(), self.inner.bias)

    def _dense(self) -> Tensor:
        layer, pattern = self.inner, self.inner.pattern
        dense = torch.zeros(layer.out_features, layer.in_features, dtype=torch.float64)
        places = zip(layer.values, pattern.rows, pattern.columns, strict=True)
        for block, row, column in places:
            left, above = int(column) * pattern.side, int(row) * pattern.side
            right = layer.in_features - left - pattern.side
            below = layer.out_features - above - pattern.side
            dense = dense + functional.pad(block, (left, right, above, below))
        return dense


class EightBitRows(nn.Module):
    """A linear layer whose products, forwards and backwards, are of 8-bit floats."""

    def __init__(self, n_in: int, n_out: int, scale: int):
        super().__init__()
        formats = poptorch.float8.Float8Formats(input_scale=scale, weight_scale=-scale)
        self.scale = scale
        self.inner = poptorch.float8.Linear(n_in, n_out, formats=formats)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype is not torch.float64:
            return self.inner(x)
        return _PlainEightBits.apply(x, self.inner.weight, self.scale) + self.inner.bias


class _PlainEightBits(torch.autograd.Function):
    """The product of rounded numbers; a number is its code's value times 2^scale."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, scale: int) -> Tensor:  # noqa: ANN401
        small_x, small_weight = fp8_rounded(x, "143", -scale), fp8_rounded(weight, "143", scale)
        ctx.save_for_backward(small_x, small_weight)
        return small_x @ small_weight.mT

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight = ctx.saved_tensors
        small = fp8_rounded(gradients[0], "152", 0)
        of_weight = small.flatten(0, -2).mT @ x.flatten(0, -2)
        return small @ weight, of_weight, None
