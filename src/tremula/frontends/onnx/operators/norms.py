"""Normalisation: over batches, channels, groups and rows."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.frontends.onnx.context import NodeContext
from tremula.frontends.onnx.element_types import element_type
from tremula.frontends.onnx.operators.shape import axes_of
from tremula.frontends.onnx.table import operator


@dataclass(frozen=True)
class BatchStatistics:
    """How a batch normalisation computes and keeps its statistics."""

    epsilon: float
    momentum: float
    is_unbiased: bool = False  # whether the running variance divides by n - 1


def batch_norm_of_graph(
    x: Tensor,
    parameters: tuple[Tensor, Tensor, Tensor, Tensor],  # scale, bias, mean, variance
    how: BatchStatistics,
    context: NodeContext,
    *,
    spatial: int = 1,
) -> tuple[Tensor, ...]:
    """Normalise by the statistics of the batch if the node has outputs for them, else by its own.

    Statistics are those of a channel, or of each element of a sample if `spatial` is 0.
    """
    shape = [x.shape[1]] if spatial else list(x.shape[1:])
    _check_shapes(x, parameters, shape)
    if not spatial:
        flat = tuple(p.reshape(-1) for p in parameters)
        result, *statistics = _batch_norm(x.flatten(1), flat, how, context)
        return result.reshape(x.shape), *(s.reshape(shape) for s in statistics)
    return _batch_norm(x, parameters, how, context)


def _check_shapes(x: Tensor, parameters: tuple[Tensor, ...], shape: list[int]) -> None:
    for name, parameter in zip(("scale", "B", "mean", "var"), parameters, strict=True):
        if list(parameter.shape) != shape:
            raise ValueError(
                f"expected shape of batch norm input tensor {name} ({list(parameter.shape)}) to be"
                f" {shape}, as x has shape {list(x.shape)}"
            )


def _batch_norm(
    x: Tensor, parameters: tuple[Tensor, ...], how: BatchStatistics, context: NodeContext
) -> tuple[Tensor, ...]:
    scale, bias, mean, var = parameters
    if context.wants(1):
        return _of_batch(x, scale, bias, mean, var, how)
    return (_normalised(x, scale, bias, mean, var, how.epsilon),)


def _normalised(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float
) -> Tensor:
    """By statistics, which have no gradient, in their type."""
    mean, var = mean.detach(), var.detach()
    if x.dim() == 1:
        return (x - mean) / torch.sqrt(var + epsilon) * scale + bias
    scale, bias = scale.to(mean.dtype), bias.to(mean.dtype)
    wide = x.to(mean.dtype)
    return F.batch_norm(wide, mean, var, scale, bias, False, 0.0, epsilon).to(x.dtype)


def _of_batch(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, how: BatchStatistics
) -> tuple[Tensor, ...]:
    """The result, running mean and variance, and those of the batch."""
    wide, scale, bias = (t.to(mean.dtype) for t in (x, scale, bias))
    result = F.batch_norm(wide, None, None, scale, bias, True, 0.0, how.epsilon).to(x.dtype)
    axes = [axis for axis in range(x.dim()) if axis != 1]
    fixed = x.detach()
    own_mean = fixed.mean(axes)
    own_var = fixed.var(axes, correction=0)
    count = x.numel() // x.shape[1]
    factor = count / max(count - 1, 1) if how.is_unbiased else 1.0
    share = 1 - how.momentum
    running_mean = mean.detach() * how.momentum + own_mean * share
    running_var = var.detach() * how.momentum + own_var * (share * factor)
    return result, running_mean, running_var, own_mean, own_var


@operator("BatchNormalization", until=6, role="norm")
def batch_norm_before_7(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
    context: NodeContext,
) -> tuple[Tensor, ...]:
    """With the statistics given, unless the node wants new ones."""
    del is_test
    how = BatchStatistics(epsilon, momentum)
    return batch_norm_of_graph(x, (scale, bias, mean, var), how, context, spatial=spatial)


@operator("BatchNormalization", since=7, until=13, role="norm")
def batch_norm_before_14(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    context: NodeContext,
) -> tuple[Tensor, ...]:
    """With the statistics given, unless the node wants new ones."""
    how = BatchStatistics(epsilon, momentum)
    return batch_norm_of_graph(x, (scale, bias, mean, var), how, context, spatial=spatial)


@operator("BatchNormalization", since=14, role="norm")
def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[Tensor, ...]:
    """With the statistics given, or in training with the batch's, and running ones as results."""
    if not training_mode:
        return (_normalised(x, scale, bias, mean, var, epsilon),)
    return _of_batch(x, scale, bias, mean, var, BatchStatistics(epsilon, momentum))[:3]


@operator("InstanceNormalization", role="norm")
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """Each channel of each sample by itself."""
    return F.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@operator("LayerNormalization", since=17, role="norm")
def layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor, ...]:
    """Over all axes from one on; and the means and inverse deviations."""
    wide = x.to(element_type(stash_type).tensor_type)
    shape = list(x.shape[axis:]) if axis else list(x.shape)
    fits = list(scale.shape) == shape and (bias is None or list(bias.shape) == shape)
    result, mean, inverse = torch.native_layer_norm(
        wide,
        shape,
        scale.to(wide.dtype) if fits else None,
        bias.to(wide.dtype) if fits and bias is not None else None,
        epsilon,
    )
    result = result.to(x.dtype)
    if not fits:
        result = result * scale
        result = result if bias is None else result + bias
    return result, mean, inverse


@operator("RMSNormalization", since=23)
def rms_norm(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """Divided by the root of the mean square over all axes from one on."""
    wide = x.to(element_type(stash_type).tensor_type)
    axes = list(range(axis % x.dim(), x.dim()))
    size = torch.rsqrt(wide.square().mean(axes, keepdim=True) + epsilon)
    return (wide * size).to(x.dtype) * scale


@operator("GroupNormalization", since=18, until=20, role="norm")
def group_norm_before_21(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int
) -> Tensor:
    """Scale and bias are one for each group."""
    each = x.shape[1] // num_groups
    wide = [t.unsqueeze(1).expand(-1, each).reshape(-1) for t in (scale, bias)]
    return F.group_norm(x, num_groups, wide[0], wide[1], epsilon)


@operator("GroupNormalization", since=21, role="norm")
def group_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> Tensor:
    """Scale and bias are one for each channel."""
    wide = x.to(element_type(stash_type).tensor_type)
    result = F.group_norm(wide, num_groups, eps=epsilon).to(x.dtype)
    shape = (-1, *[1] * (x.dim() - 2))
    return result * scale.reshape(shape) + bias.reshape(shape)


@operator("LRN")
def local_response_norm(
    x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int
) -> Tensor:
    """Divided by a power of the sum of squares of neighbouring channels."""
    squares = x.square()
    before, after = (size - 1) // 2, size // 2
    wide = F.pad(squares.transpose(1, -1), (before, after)).transpose(1, -1)
    n = x.shape[1]
    total = sum((wide.narrow(1, i, n) for i in range(1, size)), wide.narrow(1, 0, n))
    return x / torch.pow(bias + alpha / size * total, beta)


@operator("LpNormalization")
def lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divided by its norm along an axis; zeros stay."""
    size = x.abs().sum(axis, keepdim=True) if p == 1 else x.square().sum(axis, keepdim=True).sqrt()
    return torch.where(size == 0, torch.zeros_like(x), x / size)


@operator("MeanVarianceNormalization", since=9)
def mean_variance_norm(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    """Mean 0 and variance 1 over some axes."""
    over = axes_of([0, 2, 3] if axes is None else axes, x.dim())
    centred = x - x.mean(over, keepdim=True)
    return centred / (centred.square().mean(over, keepdim=True).sqrt() + 1e-9)
