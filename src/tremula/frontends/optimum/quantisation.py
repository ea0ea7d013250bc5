"""Group quantisation: weights in 4 bits with a scale for each group, decompressed where used."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from tremula.frontends.optimum.errors import IncompatibleIPUConfigError
from tremula.ir.ops.low_precision import N_LEVELS

_Model = TypeVar("_Model", bound=nn.Module)


def group_quantize(
    weight: Tensor, group_size: int, num_bits: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales and biases of a matrix [rows, columns], in groups along each row.

    Two codes share a byte: the even column is the low half. A group's codes run from its least
    value (its bias) in steps of its scale.
    """
    if num_bits != 4:
        raise IncompatibleIPUConfigError(f"weights have 4 bits here, got num_bits={num_bits}")
    if weight.dim() != 2 or weight.shape[1] % group_size or group_size % 2:
        raise IncompatibleIPUConfigError(
            f"a matrix of shape {list(weight.shape)} has no groups of {group_size} columns",
            hint="choose an even group size that divides the columns",
        )
    groups = weight.detach().float().reshape(weight.shape[0], -1, group_size)
    low = groups.amin(-1, keepdim=True)
    scale = (groups.amax(-1, keepdim=True) - low) / (N_LEVELS - 1)
    steps = (groups - low) / scale.clamp(min=torch.finfo(torch.float32).tiny)
    codes = steps.round().clamp(0, N_LEVELS - 1).to(torch.uint8).reshape(weight.shape)
    packed = codes[:, 0::2] | (codes[:, 1::2] << 4)
    kind = weight.dtype
    return packed, scale.squeeze(-1).to(kind), low.squeeze(-1).to(kind)


def group_dequantize(packed: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """The matrix that codes, scales and biases encode; on tiles they are decompressed there."""
    return torch.ops.tremula.group_decompressed(packed, scale, bias)


class GroupQuantizedLinear(nn.Module):
    """A linear layer with weights of 4 bits; inference only."""

    packed: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(self, linear: nn.Linear, group_size: int = 64):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.group_size = group_size
        packed, scale, offset = group_quantize(linear.weight, group_size)
        self.register_buffer("packed", packed)
        self.register_buffer("scale", scale)
        self.register_buffer("offset", offset)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        weight = group_dequantize(self.packed, self.scale, self.offset)
        return nn.functional.linear(x, weight.to(x.dtype), self.bias)


def group_quantize_model(model: _Model, group_size: int = 64, skip: tuple[str, ...] = ()) -> _Model:
    """Let every linear layer whose columns divide have weights of 4 bits. Returns the model."""
    for parent_name, parent in list(model.named_modules()):
        for name, child in list(parent.named_children()):
            path = f"{parent_name}.{name}".lstrip(".")
            is_kept = any(part in path for part in skip)
            if isinstance(child, nn.Linear) and child.in_features % group_size == 0 and not is_kept:
                setattr(parent, name, GroupQuantizedLinear(child, group_size))
    return model
