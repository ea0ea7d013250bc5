"""Random numbers from seeds: a pair of words and a shape always give the same numbers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import apply, public
from tremula.frontends.popxl.core.table import Operand, operation, record
from tremula.frontends.popxl.dtypes import dtype, float32, uint32
from tremula.frontends.shared.threefry import threefry

PAGE_SECTION = (8, "Random numbers")


def _words(seed: Tensor) -> tuple[Tensor, Tensor]:
    if seed.numel() != 2:
        raise ValueError(f"a seed has two words, got {tuple(seed.shape)}")
    flat = seed.reshape(2).to(torch.int32)
    return flat[0], flat[1]


def _bits(seed: Tensor, n: int) -> Tensor:
    """N random words."""
    half = (n + 1) // 2
    first = torch.arange(half, dtype=torch.int32, device=seed.device)
    x, y = threefry(_words(seed), first, first + half)
    return torch.cat([x, y])[:n]


def _uniform(seed: Tensor, shape: Sequence[int]) -> Tensor:
    """Numbers of [0, 1), as multiples of 2^-24."""
    bits = (_bits(seed, math.prod(shape)) >> 8) & 0xFFFFFF
    return (bits.to(torch.float32) * 2.0**-24).reshape(tuple(shape))


def _type_of(_inputs: list, attributes: dict) -> dtype:
    return attributes["dtype"]


@operation("RandomUniform", types=_type_of)
def random_uniform(
    seed_tensor: Operand,
    shape: Sequence[int],
    low: float = 0.0,
    high: float = 1.0,
    dtype: dtype = float32,
) -> Tensor:
    """Numbers of [low, high)."""
    return (_uniform(seed_tensor, shape) * (high - low) + low).to(dtype.carrier)


@operation("RandomNormal", types=_type_of)
def random_normal(
    seed_tensor: Operand,
    shape: Sequence[int],
    mean: float = 0.0,
    std: float = 1.0,
    dtype: dtype = float32,
) -> Tensor:
    """Numbers of a normal distribution."""
    n = math.prod(shape)
    flat = _uniform(seed_tensor, [2 * n])
    radius = torch.sqrt(-2.0 * torch.log(1.0 - flat[:n]))
    angle = flat[n:] * (2.0 * math.pi)
    result = (radius * torch.cos(angle)).reshape(tuple(shape))
    return (result * std + mean).to(dtype.carrier)


@operation("ModifyRandomSeed", name="_modified_seed")
def modified_seed(seed: Operand, modifier: Operand) -> Tensor:
    """Another seed, for a number that a program computed."""
    counter = modifier.reshape(1).to(torch.int32)
    x, y = threefry(_words(seed), counter, torch.full_like(counter, -1))
    return (torch.cat([x, y]).to(seed.dtype) & 0xFFFFFFFF).reshape(seed.shape)


@public
def split_random_seed(seed: Operand, n: int = 2) -> tuple[Tensor, ...]:
    """Several seeds that are made of one."""
    modifiers = [apply("constant", i, uint32) for i in range(n)]
    return tuple(modified_seed(seed, modifier) for modifier in modifiers)


def _dropout_gradient(ctx: object, op: Op, gradients: list, wanted: tuple[int, ...]) -> list:
    """The gradient times the mask, which is drawn again from the same seed."""
    (grad,) = gradients
    seed = ctx.forward(op.inputs[1])  # type: ignore[attr-defined]
    specs = [(grad.shape, grad.dtype)]
    attributes = dict(op.attributes)
    outputs = record(op.row, [grad, seed], op.layout, attributes, specs + _mask_specs(op))
    return [outputs[0] for _ in wanted]


def _mask_specs(op: Op) -> list:
    return [(t.shape, t.dtype) for t in op.outputs[1:]]


def _dropped(t: Tensor, seed: Tensor, shape: Sequence[int], p: float) -> Tensor:
    mask = (_uniform(seed, shape) >= p).to(t.dtype)
    return t * mask * (1.0 / (1.0 - p))


@operation("Dropout", gradient=_dropout_gradient)
def dropout(t: Operand, seed_tensor: Operand, p: float) -> Tensor:
    """Elements set to zero with probability p, the others divided by 1 - p."""
    _check_ratio(p)
    return _dropped(t, seed_tensor, t.shape, p)


@operation("ShapedDropout", gradient=_dropout_gradient)
def shaped_dropout(t: Operand, seed_tensor: Operand, shape: Sequence[int], ratio: float) -> Tensor:
    """A dropout whose mask has another shape, which is broadcast."""
    _check_ratio(ratio)
    return _dropped(t, seed_tensor, shape, ratio)


def _check_ratio(p: float) -> None:
    if not 0.0 <= p < 1.0:
        raise ValueError(f"the ratio of dropped elements must be from 0 to below 1, got {p}")
