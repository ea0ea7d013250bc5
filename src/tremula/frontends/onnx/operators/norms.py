"""Normalisation: over batches, channels, groups and rows."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.frontends.onnx.context import Context
from tremula.frontends.onnx.element_types import element_type
from tremula.frontends.onnx.operators.shape import axes_of
from tremula.frontends.onnx.table import operator


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
    context: Context,
) -> tuple[Tensor, ...]:
    """With the statistics given, unless the node wants new ones."""
    del is_test
    return _batch_norm(x, scale, bias, mean, var, epsilon, momentum, spatial, context)


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
    context: Context,
) -> tuple[Tensor, ...]:
    """With the statistics given, unless the node wants new ones."""
    return _batch_norm(x, scale, bias, mean, var, epsilon, momentum, spatial, context)


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
    result = _of_batch(x, scale, bias, mean, var, epsilon, momentum)
    return result[:3]


def _batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    epsilon: float,
    momentum: float,
    spatial: int,
    context: Context,
) -> tuple[Tensor, ...]:
    if not spatial:
        return ((x - mean) / torch.sqrt(var + epsilon) * scale + bias,)
    if context.wants(1):
        return _of_batch(x, scale, bias, mean, var, epsilon, momentum)
    return (_normalised(x, scale, bias, mean, var, epsilon),)


def _normalised(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float
) -> Tensor:
    """By statistics, which have no gradient, in their type."""
    if x.dim() == 1:
        return (x - mean) / torch.sqrt(var + epsilon) * scale + bias
    scale, bias = scale.to(mean.dtype), bias.to(mean.dtype)
    wide = x.to(mean.dtype)
    return F.batch_norm(wide, mean, var, scale, bias, False, 0.0, epsilon).to(x.dtype)


def _of_batch(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    epsilon: float,
    momentum: float,
) -> tuple[Tensor, ...]:
    """The result, running mean and variance, and those of the batch."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    own_mean = x.mean(axes)
    own_var = x.var(axes, correction=0)
    result = _normalised(x, scale, bias, own_mean, own_var, epsilon)
    kept = mean * momentum + own_mean * (1 - momentum)
    return result, kept, var * momentum + own_var * (1 - momentum), own_mean, own_var


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
    wide = x.to(element_type(stash_type).held)
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
    wide = x.to(element_type(stash_type).held)
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
    wide = x.to(element_type(stash_type).held)
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
