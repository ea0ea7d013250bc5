"""Products over axes and convolutions, brought to the forms that PyTorch and PopLibs have."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tremula.frontends.jax.carriers import carrier, in_range
from tremula.frontends.jax.rules.shapes import spread_out
from tremula.frontends.jax.table import Equation, rule


@rule("dot_general")
def dot_general(eqn: Equation, x: Tensor, y: Tensor) -> Tensor:
    """A product of matrices, of stacks of them if there are batch axes."""
    (contract_x, contract_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    carried = carrier(eqn.dtype)
    x, y = x.to(carried), y.to(carried)
    free_x = [d for d in range(x.dim()) if d not in contract_x and d not in batch_x]
    free_y = [d for d in range(y.dim()) if d not in contract_y and d not in batch_y]
    batch = [x.shape[d] for d in batch_x]
    rows, columns = [x.shape[d] for d in free_x], [y.shape[d] for d in free_y]
    inner = math.prod(x.shape[d] for d in contract_x)
    left = x.permute([*batch_x, *free_x, *contract_x])
    right = y.permute([*batch_y, *contract_y, *free_y])
    shapes = [math.prod(rows), inner], [inner, math.prod(columns)]
    if batch:
        n = math.prod(batch)
        product = torch.bmm(left.reshape(n, *shapes[0]), right.reshape(n, *shapes[1]))
    else:
        product = torch.mm(left.reshape(shapes[0]), right.reshape(shapes[1]))
    return in_range(product, eqn.dtype).reshape([*batch, *rows, *columns])


@rule("conv_general_dilated")
def convolution(eqn: Equation, x: Tensor, weights: Tensor) -> Tensor:
    params = eqn.params
    numbers = params["dimension_numbers"]
    x, weights = x.permute(numbers.lhs_spec), weights.permute(numbers.rhs_spec)
    for dim, step in enumerate(params["lhs_dilation"], 2):
        if step > 1 and x.shape[dim] > 1:
            x = spread_out(x, dim, step - 1, 0)
    groups, n_batches = params["feature_group_count"], params["batch_group_count"]
    if n_batches > 1:  # part i of the batch meets part i of the output channels
        x = _batches_as_channels(x, n_batches)
        groups *= n_batches
    padding = params["padding"]
    edges = [low for low, _ in padding]
    if any(low != high or low < 0 for low, high in padding):
        x = functional.pad(x, [size for pair in reversed(padding) for size in pair])
        edges = [0] * len(padding)
    result = _convolved(x, weights, params, edges, groups)
    back = [numbers.out_spec.index(d) for d in range(result.dim())]
    return result.to(carrier(eqn.dtype)).permute(back)


def _convolved(
    x: Tensor, weights: Tensor, params: Mapping[str, Any], edges: Sequence[int], groups: int
) -> Tensor:
    strides, steps = list(params["window_strides"]), list(params["rhs_dilation"])
    if not strides:  # without axes to slide along, a product
        x, weights = x.unsqueeze(-1), weights.unsqueeze(-1)
        return functional.conv1d(x, weights, groups=groups).squeeze(-1)
    n = len(strides)
    return torch.convolution(x, weights, None, strides, list(edges), steps, False, [0] * n, groups)


def _batches_as_channels(x: Tensor, n: int) -> Tensor:
    parts = x.reshape(n, x.shape[0] // n, *x.shape[1:])
    return parts.transpose(0, 1).reshape(x.shape[0] // n, n * x.shape[1], *x.shape[2:])
