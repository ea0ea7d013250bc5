"""Decompositions of products of several tensors, quantisation, weight norms and batch norms."""

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
    output_letters = "".join(x for d, x in enumerate(letters) if d not in summed)
    return torch.einsum(f"{','.join(names)}->{output_letters}", a, b, c)


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


@decomposes(aten.addmv.default)
def addmv(bias: Tensor, a: Tensor, x: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """A product and a bias, each times a factor; what has the factor zero is not read."""
    product = a.new_zeros(a.shape[0]) if alpha == 0 else torch.mv(a, x)
    product = product if alpha in (0, 1) else product * alpha
    if beta == 0:
        return product
    return product + (bias if beta == 1 else bias * beta)


@decomposes(aten._weight_norm_interface_backward.default)
def weight_norm_backward(
    gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Gradients of direction and length of weights g * v / |v|, one length per place of `dim`."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    along = (gradient * v).sum(others, keepdim=True)
    of_v = (g / norms) * (gradient - v * (along / (norms * norms)))
    return of_v, along / norms


@decomposes(aten._batch_norm_with_update_functional.default)
def batch_norm_with_update(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    momentum: float, epsilon: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Batch norm in training, with nothing kept for cuDNN."""
    result = aten._native_batch_norm_legit_functional.default(
        x, weight, bias, mean, variance, True, momentum, epsilon
    )
    return *result[:3], x.new_zeros(0, dtype=torch.uint8), *result[3:]


@decomposes(aten.batch_norm_backward.default)
def batch_norm_backward(*arguments: object) -> tuple[Tensor | None, ...]:
    """The last argument is what cuDNN kept."""
    return aten.native_batch_norm_backward.default(*arguments[:-1])


@decomposes(aten.angle.default)
def angle(x: Tensor) -> Tensor:
    """0 or π; NaN stays."""
    if x.dtype.is_complex:
        parts = torch.view_as_real(x)
        return torch.atan2(parts[..., 1], parts[..., 0])
    if not x.dtype.is_floating_point:
        return torch.where(x < 0, torch.pi, 0.0).to(torch.float32)
    return torch.where(x.isnan(), x, torch.where(x < 0, torch.pi, 0.0).to(x.dtype))


@decomposes(aten.special_zeta.other_scalar)
def zeta_of_number(x: Tensor, other: float) -> Tensor:
    """Of two tensors."""
    return torch.special.zeta(x, x.new_full((), other))


@decomposes(aten.special_zeta.self_scalar)
def zeta_by_number(x: float, other: Tensor) -> Tensor:
    """Of two tensors."""
    return torch.special.zeta(other.new_full((), x), other)
