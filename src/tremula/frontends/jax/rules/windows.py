"""Reductions over sliding windows, and the gradients of pools."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from tremula.frontends.jax.carriers import Value, ordered
from tremula.frontends.jax.rules.reductions import evaluate_elementwise, identity_of
from tremula.frontends.jax.rules.shapes import padded_with
from tremula.frontends.jax.table import Equation, rule


def _shifted(x: Tensor, dim: int, size: int, stride: int, step: int, n: int) -> list[Tensor]:
    """The elements that windows along a dimension see first, second, …: views."""
    span = (n - 1) * stride + 1
    return [
        x.narrow(dim, k * step, span)[(slice(None),) * dim + (slice(None, None, stride),)]
        for k in range(size)
    ]


def _n_windows(length: int, size: int, stride: int, step: int) -> int:
    return max(0, (length - (size - 1) * step - 1) // stride + 1)


def _over_windows(eqn: Equation, x: Tensor, start: object, combine: Callable) -> Tensor:
    """Axis by axis: windows are boxes, and the order in a sum does not matter."""
    params = eqn.params
    dilation = params.get("base_dilation") or (1,) * x.dim()
    config = [
        (low, high, between - 1)
        for (low, high), between in zip(params["padding"], dilation, strict=True)
    ]
    x = padded_with(x, start, config)
    steps = params.get("window_dilation") or (1,) * x.dim()
    described = zip(params["window_dimensions"], params["window_strides"], steps, strict=True)
    for dim, (size, stride, step) in enumerate(described):
        if size == 1 and stride == 1:
            continue
        n = _n_windows(x.shape[dim], size, stride, step)
        first, *others = _shifted(x, dim, size, stride, step, n)
        for other in others:
            first = combine(first, other)
        x = first
    return x


@rule("reduce_window_sum")
def window_sum(eqn: Equation, x: Tensor) -> Tensor:
    return _over_windows(eqn, x, 0, torch.add)


@rule("reduce_window_max")
def window_max(eqn: Equation, x: Tensor) -> Tensor:
    return _window_extreme(eqn, x, "max", torch.maximum)


@rule("reduce_window_min")
def window_min(eqn: Equation, x: Tensor) -> Tensor:
    return _window_extreme(eqn, x, "min", torch.minimum)


def _window_extreme(eqn: Equation, x: Tensor, kind: str, combine: Callable) -> Tensor:
    x = ordered(x, eqn.dtype)
    start = identity_of(kind, _signed(eqn.dtype, x))
    return ordered(_over_windows(eqn, x, start, combine), eqn.dtype)


def _signed(dtype: DTypeLike, tensor: Tensor) -> np.dtype:
    """The type whose limits apply to the tensor's numbers."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        return np.dtype(dtype) if tensor.dtype != torch.bfloat16 else np.dtype(np.float32)
    return np.dtype(str(tensor.dtype).removeprefix("torch."))


@rule("reduce_window")
def window_by_function(eqn: Equation, *operands: Tensor) -> list[Value]:
    """By any function, with start values that may be computed."""
    n = len(operands) // 2
    if n != 1:
        raise NotImplementedError("windows over several arrays at once")
    x, start = operands
    inside = padded_like(eqn, torch.ones_like(x, dtype=torch.bool), False)
    padded = torch.where(inside, padded_like(eqn, x, 0), start)
    function = eqn.params["jaxpr"]
    plain = Equation(
        eqn.name,
        {**eqn.params, "padding": ((0, 0),) * padded.dim(), "base_dilation": None},
        eqn.in_avals, eqn.out_avals, eqn.source,
    )  # fmt: skip
    combine = lambda a, b: evaluate_elementwise(function, [a, b])[0]  # noqa: E731
    return [combine(_over_windows(plain, padded, 0, combine), start.expand(eqn.shape))]


def padded_like(eqn: Equation, x: Tensor, value: object) -> Tensor:
    dilation = eqn.params.get("base_dilation") or (1,) * x.dim()
    config = [
        (low, high, between - 1)
        for (low, high), between in zip(eqn.params["padding"], dilation, strict=True)
    ]
    return padded_with(x, value, config)


# -- choices ---------------------------------------------------------------------------------------


def _window_stack(x: Tensor, sizes: Sequence[int], strides: Sequence[int]) -> Tensor:
    """What each window sees, as a first dimension."""
    stacked = [x]
    for dim, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        n = _n_windows(x.shape[dim], size, stride, 1)
        stacked = [part for y in stacked for part in _shifted(y, dim, size, stride, 1, n)]
    return torch.stack(stacked)


def _chosen(eqn: Equation, windows: Tensor) -> Tensor:
    """The place that each window chooses, the first of equal ones."""
    name = eqn.params["select_prim"].name
    return torch.argmin(windows, 0) if name == "le" else torch.argmax(windows, 0)


def _window_params(eqn: Equation) -> tuple[Sequence[int], Sequence[int], Any]:
    return eqn.params["window_dimensions"], eqn.params["window_strides"], eqn.params["padding"]


def _select_padding(eqn: Equation) -> float | int | bool:
    kind = "min" if eqn.params["select_prim"].name == "le" else "max"
    return identity_of(kind, np.dtype(eqn.in_avals[-1].dtype))


@rule("select_and_gather_add")
def select_and_gather_add(eqn: Equation, tangents: Tensor, x: Tensor) -> Tensor:
    """The tangent at the place that each window chooses."""
    sizes, strides, padding = _window_params(eqn)
    config = [(low, high, 0) for low, high in padding]
    windows = _window_stack(padded_with(x, _select_padding(eqn), config), sizes, strides)
    seen = _window_stack(padded_with(tangents, 0, config), sizes, strides)
    return torch.gather(seen, 0, _chosen(eqn, windows).unsqueeze(0)).squeeze(0)


@rule("select_and_scatter_add")
def select_and_scatter_add(eqn: Equation, source: Tensor, x: Tensor) -> Tensor:
    """Each window's number is added at the place it chooses: the gradient of a pool."""
    sizes, strides, padding = _window_params(eqn)
    padded = padded_with(x, _select_padding(eqn), [(low, high, 0) for low, high in padding])
    place = _chosen(eqn, _window_stack(padded, sizes, strides))
    total = torch.zeros_like(padded)
    for number, offsets in enumerate(np.ndindex(*sizes)):
        part = torch.where(place == number, source, torch.zeros_like(source))
        config = []
        for dim, (offset, stride) in enumerate(zip(offsets, strides, strict=True)):
            span = (part.shape[dim] - 1) * stride + 1
            config.append((offset, padded.shape[dim] - offset - span, stride - 1))
        total = total + padded_with(part, 0, config)
    for dim, (low, high) in enumerate(padding):
        total = total.narrow(dim, low, total.shape[dim] - low - high)
    return total
