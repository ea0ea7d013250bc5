"""Group norm whose group g has channels g, g + n_groups, …: popnn's strided channel grouping.

(popnn/GroupNorm.cpp, `groupNormStridedChannelGrouping`.) On the host channels are brought into
ATen's order and back. On tiles nothing moves: the statistics of neighbouring channels differ, and
those of all groups repeat from position to position (lowering/nn/norms.py).
"""

from typing import Any

import torch
from torch import Tensor

Context = Any  # what autograd keeps between a call and its gradient
Three = tuple[Tensor | None, Tensor | None, Tensor | None]
_aten = torch.ops.aten
_library = torch.library.Library("tremula", "FRAGMENT")
_library.define(
    "strided_group_norm(Tensor x, Tensor? gamma, Tensor? beta, int n_groups, float epsilon)"
    " -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "strided_group_norm_backward(Tensor gradient, Tensor x, Tensor mean, Tensor inverse,"
    " Tensor? gamma, int n_groups, bool[3] output_mask) -> (Tensor?, Tensor?, Tensor?)"
)


def strided_channels(x: Tensor, stride: int, dim: int = 1) -> Tensor:
    """Channels 0, stride, 2 stride, …, then those from 1 on, and so on."""
    return x.unflatten(dim, (-1, stride)).transpose(dim, dim + 1).flatten(dim, dim + 1)


def _per_channel(parameter: Tensor | None, stride: int) -> Tensor | None:
    return None if parameter is None else strided_channels(parameter, stride, 0)


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """Of the batch, of the channels, of the field."""
    n_batch, n_channels = x.shape[:2]
    return n_batch, n_channels, x[:1, :1].numel()


def _run(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, n_groups: int, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    gamma, beta = _per_channel(gamma, n_groups), _per_channel(beta, n_groups)
    moved = strided_channels(x, n_groups).contiguous()
    result, mean, inverse = _aten.native_group_norm(
        moved, gamma, beta, *_sizes(x), n_groups, epsilon
    )
    return strided_channels(result, x.shape[1] // n_groups).contiguous(), mean, inverse


def _run_backward(
    gradient: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gamma: Tensor | None,
    n_groups: int, output_mask: list[bool],
) -> Three:  # fmt: skip
    """ATen's kernel of CPUs has no gradient of beta without a gamma, so ones stand for none."""
    moved = [strided_channels(t, n_groups).contiguous() for t in (gradient, x)]
    scale = x.new_ones(x.shape[1]) if gamma is None else strided_channels(gamma, n_groups, 0)
    of_x, of_gamma, of_beta = _aten.native_group_norm_backward(
        *moved, mean, inverse, scale, *_sizes(x), n_groups, output_mask
    )
    back = x.shape[1] // n_groups
    of_x = strided_channels(of_x, back).contiguous() if output_mask[0] else None
    of_gamma, of_beta = (_per_channel(g, back) for g in (of_gamma, of_beta))
    return of_x, of_gamma, of_beta


def _shapes(
    x: Tensor, _gamma: Tensor | None, _beta: Tensor | None, n_groups: int, _epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    statistics = (x.shape[0], n_groups)
    return x.new_empty(x.shape), x.new_empty(statistics), x.new_empty(statistics)


def _backward_shapes(
    _gradient: Tensor, x: Tensor, _mean: Tensor, _inverse: Tensor, gamma: Tensor | None,
    _n_groups: int, output_mask: list[bool],
) -> Three:  # fmt: skip
    like = x if gamma is None else gamma
    shapes = (x.new_empty(x.shape), *(like.new_empty(x.shape[1]) for _ in range(2)))
    of_x, of_gamma, of_beta = (
        t if wanted else None for t, wanted in zip(shapes, output_mask, strict=True)
    )
    return of_x, of_gamma, of_beta


def _keep(ctx: Context, inputs: tuple, output: tuple) -> None:
    x, gamma, _, ctx.n_groups, _ = inputs
    _, mean, inverse = output
    ctx.save_for_backward(x, mean, inverse, gamma)


def _gradients(ctx: Context, gradient: Tensor, _mean: object, _inverse: object) -> tuple:
    x, mean, inverse, gamma = ctx.saved_tensors
    needs = list(ctx.needs_input_grad[:3])
    backward = torch.ops.tremula.strided_group_norm_backward
    return (*backward(gradient, x, mean, inverse, gamma, ctx.n_groups, needs), None, None)


_library.impl("strided_group_norm", _run, "CompositeExplicitAutograd")
_library.impl("strided_group_norm_backward", _run_backward, "CompositeExplicitAutograd")
torch.library.register_fake("tremula::strided_group_norm", _shapes, lib=_library)
torch.library.register_fake("tremula::strided_group_norm_backward", _backward_shapes, lib=_library)
torch.library.register_autograd(
    "tremula::strided_group_norm", _gradients, setup_context=_keep, lib=_library
)


def strided_group_norm(
    x: Tensor, n_groups: int, gamma: Tensor | None, beta: Tensor | None, epsilon: float
) -> Tensor:
    return torch.ops.tremula.strided_group_norm(x, gamma, beta, n_groups, epsilon)[0]
