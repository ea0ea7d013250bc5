"""Kinds that normalise."""

import torch
from torch import Tensor
from torch.nn import functional

from tremula.ir.ops.strided_norm import strided_channels
from tremula.ir.recording import active


def group_norm(
    t: Tensor, scale: Tensor, bias: Tensor, n_groups: int, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised within groups of channels, scaled and shifted by channel.

    Also the mean and the inverse deviation of each group of each sample, in float32: statistics are
    computed in float32, whatever the type of the operand.
    """
    wide = t.float()
    result = functional.group_norm(wide, n_groups, scale.float(), bias.float(), epsilon)
    recording = active()
    if recording is not None and recording.strides_group_norms:
        wide = strided_channels(wide, n_groups)
    groups = wide.reshape(t.shape[0] * n_groups, -1)
    variance, mean = torch.var_mean(groups, 1, correction=0)
    return result.to(t.dtype), mean, torch.rsqrt(variance + epsilon)
