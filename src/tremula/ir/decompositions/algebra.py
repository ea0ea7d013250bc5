"""Decompositions of products of several tensors, quantisation and weight norms."""

import torch
from torch import Tensor

from tremula.ir.op_table import decomposes

aten = torch.ops.aten


@decomposes(aten._trilinear.default)
def trilinear(
    a: Tensor, b: Tensor, c: Tensor, new_a: list[int], new_b: list[int], new_c: list[int],
    summed: list[int], _unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    """A sum of products of three, as matrix products; `new_…` are dimensions that one lacks."""
    n_dims = a.dim() + len(new_a)
    letters = "".join(chr(ord("a") + d) for d in range(n_dims))
    names = [
        "".join(x for d, x in enumerate(letters) if d not in new) for new in (new_a, new_b, new_c)
    ]
    kept = "".join(x for d, x in enumerate(letters) if d not in summed)
    return torch.einsum(f"{','.join(names)}->{kept}", a, b, c)


@decomposes(aten.fake_quantize_per_tensor_affine_cachemask.default)
def fake_quantize(
    x: Tensor, scale: float, zero_point: int, lowest: int, highest: int
) -> tuple[Tensor, Tensor]:
    """X as a whole number of steps, and where that number needs no clamp."""
    steps = torch.round(x * (1 / scale)) + zero_point
    is_inside = (steps >= lowest) & (steps <= highest)
    return (steps.clamp(lowest, highest) - zero_point) * scale, is_inside


@decomposes(aten.addbmm.default)
def addbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """One product over batch and inner dimension together."""
    left = a.permute(1, 0, 2).reshape(a.shape[1], -1)
    right = b.reshape(-1, b.shape[2])
    return aten.addmm.default(bias, left, right, beta=beta, alpha=alpha)


@decomposes(aten._weight_norm_interface_backward.default)
def weight_norm_backward(
    gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Gradients of direction and length of weights g * v / |v|, one length per place of `dim`."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    along = (gradient * v).sum(others, keepdim=True)
    of_v = (g / norms) * (gradient - v * (along / (norms * norms)))
    return of_v, along / norms
