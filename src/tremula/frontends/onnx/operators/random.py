"""Random tensors: drawn by the generator of the program, which the seeds of nodes seed."""

import torch
from torch import Tensor

from tremula.frontends.onnx.context import NodeContext
from tremula.frontends.onnx.element_types import element_type
from tremula.frontends.onnx.table import operator


@operator("RandomNormal", folds=False)
def random_normal(
    *,
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,  # noqa: ARG001
    shape: list[int],
    context: NodeContext,
) -> Tensor:
    """From a normal distribution."""
    return (
        torch.randn(shape, dtype=element_type(dtype).tensor_type, device=context.device) * scale
        + mean
    )


@operator("RandomNormalLike", folds=False)
def random_normal_like(
    x: Tensor,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,  # noqa: ARG001
) -> Tensor:
    """From a normal distribution, shaped like another tensor."""
    kind = x.dtype if dtype is None else element_type(dtype).tensor_type
    return torch.randn_like(x, dtype=kind) * scale + mean


@operator("RandomUniform", folds=False)
def random_uniform(
    *,
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,  # noqa: ARG001
    shape: list[int],
    context: NodeContext,
) -> Tensor:
    """Evenly between two numbers."""
    drawn = torch.rand(shape, dtype=element_type(dtype).tensor_type, device=context.device)
    return drawn * (high - low) + low


@operator("RandomUniformLike", folds=False)
def random_uniform_like(
    x: Tensor,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,  # noqa: ARG001
) -> Tensor:
    """Evenly between two numbers, shaped like another tensor."""
    kind = x.dtype if dtype is None else element_type(dtype).tensor_type
    return torch.rand_like(x, dtype=kind) * (high - low) + low


@operator("Bernoulli", since=15, folds=False)
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:  # noqa: ARG001
    """1 with the probability given, else 0."""
    kind = x.dtype if dtype is None else element_type(dtype).tensor_type
    return (torch.rand_like(x) < x).to(kind)


@operator("Multinomial", since=7, folds=False)
def multinomial(
    x: Tensor,
    *,
    dtype: int = 6,
    sample_size: int = 1,
    seed: float | None = None,  # noqa: ARG001
) -> Tensor:
    """Classes drawn by their unnormalised log-probabilities."""
    noise = -torch.log(-torch.log(torch.rand(x.shape[0], sample_size, x.shape[1], device=x.device)))
    return (x.unsqueeze(1) + noise).argmax(-1).to(element_type(dtype).tensor_type)
