"""Reductions and running reductions along axes, places of extremes, orders."""

from collections.abc import Callable

import numpy as np
import torch
from jax.extend.core import ClosedJaxpr, Jaxpr
from torch import Tensor

from tremula.frontends.jax.carriers import Value, carrier, in_range, ordered
from tremula.frontends.jax.evaluate import evaluate
from tremula.frontends.jax.table import Equation, rule


@rule("reduce_sum")
def reduce_sum(eqn: Equation, x: Tensor) -> Tensor:
    axes = tuple(eqn.params["axes"])
    if not axes:
        return x
    return in_range(torch.sum(x, axes, dtype=carrier(eqn.dtype)), eqn.dtype)


@rule("reduce_prod")
def reduce_prod(eqn: Equation, x: Tensor) -> Tensor:
    for axis in sorted(eqn.params["axes"], reverse=True):
        x = in_range(torch.prod(x, axis, dtype=carrier(eqn.dtype)), eqn.dtype)
    return x


def _extreme(eqn: Equation, x: Tensor, reduce: Callable) -> Tensor:
    axes = tuple(eqn.params["axes"])
    if not axes:
        return x
    if x.dtype == torch.bool:
        return _any(x, axes) if reduce is torch.amax else ~_any(~x, axes)
    return ordered(reduce(ordered(x, eqn.in_dtype), axes), eqn.in_dtype)


@rule("reduce_max")
def reduce_max(eqn: Equation, x: Tensor) -> Tensor:
    return _extreme(eqn, x, torch.amax)


@rule("reduce_min")
def reduce_min(eqn: Equation, x: Tensor) -> Tensor:
    return _extreme(eqn, x, torch.amin)


def _any(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return torch.any(x, axes) if axes else x


@rule("reduce_or")
def reduce_or(eqn: Equation, x: Tensor) -> Tensor:
    return _folded(eqn, x, torch.bitwise_or)


@rule("reduce_and")
def reduce_and(eqn: Equation, x: Tensor) -> Tensor:
    return _folded(eqn, x, torch.bitwise_and)


@rule("reduce_xor")
def reduce_xor(eqn: Equation, x: Tensor) -> Tensor:
    return _folded(eqn, x, torch.bitwise_xor)


def _folded(eqn: Equation, x: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Bits are combined half by half: PyTorch reduces only booleans so."""
    axes = tuple(eqn.params["axes"])
    if x.dtype == torch.bool and combine is not torch.bitwise_xor:
        return _any(x, axes) if combine is torch.bitwise_or else ~_any(~x, axes)
    for axis in sorted(axes, reverse=True):
        while x.shape[axis] > 1:
            half = x.shape[axis] // 2
            rest = x.narrow(axis, 2 * half, x.shape[axis] - 2 * half)
            x = combine(x.narrow(axis, 0, half), x.narrow(axis, half, half))
            x = torch.cat([x, rest], axis) if rest.shape[axis] else x
        x = x.squeeze(axis)
    return x


@rule("reduce")
def reduce_by_function(eqn: Equation, *operands: Tensor) -> list[Value]:
    """A reduction by any function: elements of each axis are combined half by half."""
    n, function = len(operands) // 2, eqn.params["jaxpr"]
    values, starts = list(operands[:n]), list(operands[n:])
    for axis in sorted(eqn.params["dimensions"], reverse=True):
        values = _halves_combined(values, axis, function)
    firsts = [s.expand(v.shape) for s, v in zip(starts, values, strict=True)]
    return evaluate_elementwise(function, firsts + values)


def _halves_combined(values: list, axis: int, function: Jaxpr | ClosedJaxpr) -> list:
    while (size := values[0].shape[axis]) > 1:
        half = size // 2
        firsts = [v.narrow(axis, 0, half) for v in values]
        others = [v.narrow(axis, half, half) for v in values]
        combined = evaluate_elementwise(function, firsts + others)
        if size % 2:
            combined = [
                torch.cat([c, v.narrow(axis, size - 1, 1)], axis)
                for c, v in zip(combined, values, strict=True)
            ]
        values = combined
    return [v.squeeze(axis) for v in values]


def evaluate_elementwise(function: Jaxpr | ClosedJaxpr, operands: list) -> list:
    """A jaxpr of scalars on arrays: rules of element-wise primitives take any shape."""
    closed = function if isinstance(function, ClosedJaxpr) else ClosedJaxpr(function, ())
    return evaluate(closed, operands)


# -- places ----------------------------------------------------------------------------------------


@rule("argmax")
def argmax(eqn: Equation, x: Tensor) -> Tensor:
    return _place(eqn, x, torch.argmax)


@rule("argmin")
def argmin(eqn: Equation, x: Tensor) -> Tensor:
    return _place(eqn, x, torch.argmin)


def _place(eqn: Equation, x: Tensor, find: Callable) -> Tensor:
    (axis,) = eqn.params["axes"]
    x = x.to(torch.int32) if x.dtype == torch.bool else ordered(x, eqn.in_dtype)
    return find(x, axis).to(carrier(eqn.params["index_dtype"]))


@rule("sort")
def sort(eqn: Equation, *operands: Tensor) -> list[Value]:
    """By the last key first, each time stably, so that earlier keys decide."""
    axis, n_keys = eqn.params["dimension"], eqn.params["num_keys"]
    keys = [
        ordered(_sortable(x), aval.dtype)
        for x, aval in zip(operands[:n_keys], eqn.in_avals, strict=False)
    ]
    if len(operands) == 1 and operands[0].dtype != torch.bool:
        (values,), (aval,) = [torch.sort(keys[0], dim=axis, stable=True)[0]], eqn.in_avals
        return [ordered(values, aval.dtype)]
    order = None
    for key in reversed(keys):
        key = key if order is None else torch.gather(key, axis, order)
        places = torch.sort(key, dim=axis, stable=True)[1]
        order = places if order is None else torch.gather(order, axis, places)
    assert order is not None, "there is a key at least"
    return [torch.gather(x, axis, order) for x in operands]


def _sortable(x: Tensor) -> Tensor:
    return x.to(torch.int32) if x.dtype == torch.bool else x


@rule("top_k", "approx_top_k")
def top_k(eqn: Equation, x: Tensor) -> list[Value]:
    """Of equal elements the first ones are taken."""
    axis = eqn.params.get("axis", eqn.params.get("reduction_dimension", -1)) % x.dim()
    values, places = torch.sort(
        ordered(x, eqn.in_dtype), dim=axis, stable=True, descending=eqn.params.get("is_max_k", True)
    )
    k = eqn.params["k"]
    result = ordered(values.narrow(axis, 0, k), eqn.in_dtype)
    return [result, places.narrow(axis, 0, k).to(torch.int32)]


# -- running reductions ----------------------------------------------------------------------------


def _running(eqn: Equation, x: Tensor, scan: Callable[[Tensor, int], Tensor]) -> Tensor:
    axis = eqn.params["axis"]
    if not eqn.params["reverse"]:
        return scan(x, axis)
    return torch.flip(scan(torch.flip(x, (axis,)), axis), (axis,))


@rule("cumsum")
def cumsum(eqn: Equation, x: Tensor) -> Tensor:
    sums = _running(eqn, x, lambda x, d: torch.cumsum(x, d, dtype=x.dtype))
    return in_range(sums, eqn.dtype)


@rule("cumprod")
def cumprod(eqn: Equation, x: Tensor) -> Tensor:
    products = _running(eqn, x, lambda x, d: torch.cumprod(x, d, dtype=x.dtype))
    return in_range(products, eqn.dtype)


@rule("cummax")
def cummax(eqn: Equation, x: Tensor) -> Tensor:
    result = _running(eqn, ordered(x, eqn.dtype), lambda x, d: torch.cummax(x, d)[0])
    return ordered(result, eqn.dtype)


@rule("cummin")
def cummin(eqn: Equation, x: Tensor) -> Tensor:
    result = _running(eqn, ordered(x, eqn.dtype), lambda x, d: torch.cummin(x, d)[0])
    return ordered(result, eqn.dtype)


@rule("cumlogsumexp")
def cumlogsumexp(eqn: Equation, x: Tensor) -> Tensor:
    return _running(eqn, x, torch.logcumsumexp)


def identity_of(kind: str, dtype: np.dtype) -> float | int | bool:
    """What changes nothing in a sum, or in a choice of the largest or smallest."""
    dtype = np.dtype(dtype)
    if kind == "sum":
        return 0
    if dtype.kind == "b":
        return kind == "min"
    if np.issubdtype(dtype, np.integer):
        return int(np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max)
    return float("-inf") if kind == "max" else float("inf")
