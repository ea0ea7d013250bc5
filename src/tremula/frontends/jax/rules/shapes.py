"""Shapes: views, copies, conversions, padding, choosing. What only moves elements takes keys."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tremula.frontends.jax.carriers import Key, Value, by_words, carrier, is_wrapped, ordered
from tremula.frontends.jax.errors import JaxError
from tremula.frontends.jax.evaluate import known_number
from tremula.frontends.jax.table import Equation, rule
from tremula.frontends.jax.unsigned import from_float, to_float

# -- conversions -----------------------------------------------------------------------------------


@rule("convert_element_type")
def convert(eqn: Equation, x: Tensor) -> Tensor:
    before, after = np.dtype(eqn.in_dtype), np.dtype(eqn.params["new_dtype"])
    carried = carrier(after)
    if before == after:
        return x
    if after.kind == "b":
        return x != 0
    if is_wrapped(before) and not np.issubdtype(after, np.integer):
        return to_float(x, torch.float32 if carried.is_complex else carried).to(carried)
    if is_wrapped(before) and after.itemsize > before.itemsize:
        return x.to(carried) & 0xFFFFFFFF
    if np.issubdtype(before, np.floating) and np.issubdtype(after, np.integer):
        return _truncated(x, after, carried)
    if x.is_complex() and not carried.is_complex:
        x = torch.real(x)
    converted = x.to(carried)
    return converted & 0xFFFF if after == np.uint16 else converted


def _truncated(x: Tensor, after: np.dtype, dtype: torch.dtype) -> Tensor:
    """Towards zero; what is out of range becomes the nearest number, as XLA has it."""
    if is_wrapped(after):
        return from_float(x, dtype)
    limits = np.iinfo(after)
    whole = torch.nan_to_num(x, nan=0.0)
    inside = torch.clamp(whole, float(limits.min), float(limits.max)).to(dtype)
    if limits.bits < 32 and x.dtype.itemsize >= 4:
        return inside  # the type's limits are floats
    top = torch.full_like(inside, int(limits.max))
    return torch.where(whole >= float(limits.max), top, inside)


@rule("bitcast_convert_type")
def bitcast(eqn: Equation, x: Tensor) -> Tensor:
    """Bits read as another type; types of other sizes gain or lose a last dimension."""
    before, after = np.dtype(eqn.in_dtype), np.dtype(eqn.params["new_dtype"])
    if np.uint16 in (before, after):
        return _bitcast_uint16(x, before, after)
    carried = carrier(after)
    if before.itemsize == after.itemsize:
        return x if x.dtype == carried else x.view(carried)
    if before.itemsize < after.itemsize:
        return x.contiguous().view(carried).squeeze(-1)
    return x.unsqueeze(-1).contiguous().view(carried)


def _bitcast_uint16(x: Tensor, before: np.dtype, after: np.dtype) -> Tensor:
    if before.itemsize != after.itemsize:
        raise JaxError("bits of uint16 can only be seen as another type of 16 bits.")
    if after == np.uint16:
        return x.view(torch.int16).to(torch.int32) & 0xFFFF
    return x.to(torch.int16).view(carrier(after))


@rule("reduce_precision")
def reduce_precision(eqn: Equation, x: Tensor) -> Tensor:
    bits = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    kinds = {(5, 10): torch.float16, (8, 7): torch.bfloat16, (8, 23): torch.float32}
    if bits not in kinds:
        raise JaxError(
            f"a float with {bits[0]} bits of exponent and {bits[1]} of mantissa is not available.",
            hint="use those of float16 (5, 10), bfloat16 (8, 7) or float32 (8, 23)",
        )
    return x if x.dtype.itemsize <= kinds[bits].itemsize else x.to(kinds[bits]).to(x.dtype)


# -- elements that stay in order -------------------------------------------------------------------


@rule("copy", "copy_p", "stop_gradient", "device_put", "sharding_constraint", "name",
      "optimization_barrier", "pvary", "mesh_cast")  # fmt: skip
def same(_eqn: Equation, *values: Value) -> list[Value]:
    """On one device these change nothing."""
    return list(values)


@rule("reshape")
def reshape(eqn: Equation, x: Value) -> Value:
    """In the order of `dimensions`, if there are any: gradients of products turn arrays so."""
    order = eqn.params.get("dimensions")
    if order is not None:
        x = by_words(torch.permute, x, dims=list(order))
    return by_words(torch.reshape, x, shape=eqn.shape)


@rule("squeeze")
def squeeze(eqn: Equation, x: Value) -> Value:
    return by_words(torch.reshape, x, shape=eqn.shape)


@rule("broadcast_in_dim")
def broadcast_in_dim(eqn: Equation, x: Value, *_sizes: Value) -> Value:
    dims = eqn.params["broadcast_dimensions"]

    def spread(x: Tensor) -> Tensor:
        shape = [1] * len(eqn.shape)
        for dim, size in zip(dims, x.shape, strict=True):
            shape[dim] = size
        return x.reshape(shape).expand(eqn.shape)

    return by_words(spread, x)


@rule("transpose")
def transpose(eqn: Equation, x: Value) -> Value:
    return by_words(torch.permute, x, dims=tuple(eqn.params["permutation"]))


@rule("rev")
def rev(eqn: Equation, x: Value) -> Value:
    return by_words(torch.flip, x, dims=tuple(eqn.params["dimensions"]))


@rule("concatenate")
def concatenate(eqn: Equation, *parts: Value) -> Value:
    return by_words(lambda *p: torch.cat(p, eqn.params["dimension"]), *parts)


@rule("stack")
def stack(eqn: Equation, *parts: Value) -> Value:
    return by_words(lambda *p: torch.stack(p, eqn.params["axis"]), *parts)


@rule("unstack")
def unstack(eqn: Equation, x: Value) -> list[Value]:
    axis, n = eqn.params["axis"], len(eqn.out_avals)
    return [by_words(torch.select, x, dim=axis, index=i) for i in range(n)]


@rule("split")
def split(eqn: Equation, x: Value) -> list[Value]:
    axis, begin, parts = eqn.params["axis"], 0, []
    for size in eqn.params["sizes"]:
        parts.append(by_words(torch.narrow, x, dim=axis, start=begin, length=size))
        begin += size
    return parts


@rule("tile")
def tile(eqn: Equation, x: Value) -> Value:
    return by_words(torch.tile, x, dims=tuple(eqn.params["reps"]))


@rule("slice")
def slices(eqn: Equation, x: Value) -> Value:
    begins, ends = eqn.params["start_indices"], eqn.params["limit_indices"]
    steps = eqn.params["strides"] or [1] * len(begins)
    index = tuple(slice(b, e, s) for b, e, s in zip(begins, ends, steps, strict=True))
    return by_words(lambda x: x[index], x)


def clamped_starts(starts: Sequence[Tensor], shape: Sequence[int], sizes: Sequence[int]) -> list:
    """Where a slice begins in each dimension, moved so that it ends inside; numbers if known."""
    result = []
    for start, size, taken in zip(starts, shape, sizes, strict=True):
        number = 0 if size == taken else known_number(start)
        if number is None:
            result.append(torch.clamp(start, 0, size - taken).to(torch.int32))
        else:
            result.append(min(max(int(number), 0), size - taken))
    return result


@rule("dynamic_slice")
def dynamic_slice(eqn: Equation, x: Value, *starts: Tensor) -> Value:
    sizes = eqn.params["slice_sizes"]
    begins = clamped_starts(starts, eqn.in_avals[0].shape, sizes)

    def taken(x: Tensor) -> Tensor:
        for dim, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
            if isinstance(begin, int):
                x = x.narrow(dim, begin, size)
            else:
                x = torch.ops.tremula.dynamic_slice(x, begin, dim, size)
        return x

    return by_words(taken, x)


@rule("dynamic_update_slice")
def dynamic_update_slice(eqn: Equation, x: Value, update: Value, *starts: Tensor) -> Value:
    sizes = eqn.in_avals[1].shape
    begins = clamped_starts(starts, eqn.in_avals[0].shape, sizes)
    return by_words(lambda x, u: _updated(x, u, begins), x, update)


def _updated(x: Tensor, update: Tensor, begins: list) -> Tensor:
    """One dimension after another: the rows around the slice are cut out, updated, put back."""
    dims = [d for d, begin in enumerate(begins) if x.shape[d] != update.shape[d]]
    if not dims:
        return update.clone()
    dim, *inner = dims
    begin, size = begins[dim], update.shape[dim]
    if inner:
        update = _updated(_cut(x, begin, dim, size), update, [0 if d == dim else b
                          for d, b in enumerate(begins)])  # fmt: skip
    if isinstance(begin, int):
        return torch.slice_scatter(x, update, dim, begin, begin + size)
    return torch.ops.tremula.dynamic_update(x, update, begin, dim)


def _cut(x: Tensor, begin: object, dim: int, size: int) -> Tensor:
    if isinstance(begin, int):
        return x.narrow(dim, begin, size)
    return torch.ops.tremula.dynamic_slice(x, begin, dim, size)


# -- new elements ----------------------------------------------------------------------------------


@rule("pad")
def pad(eqn: Equation, x: Value, value: Value) -> Value:
    return by_words(lambda x, v: padded(x, v, eqn.params["padding_config"]), x, value)


def padded(x: Tensor, value: Tensor, config: Sequence[tuple[int, int, int]]) -> Tensor:
    """`config`: for each dimension how many elements come before, behind and between."""
    number = known_number(value)
    if number is None or not x.is_floating_point():
        inside = padded_with(torch.ones_like(x, dtype=torch.bool), False, config)
        return torch.where(inside, padded_with(x, 0, config), value.to(x.dtype))
    return padded_with(x, number, config)


def padded_with(x: Tensor, number: Any, config: Sequence[tuple[int, int, int]]) -> Tensor:  # noqa: ANN401
    for dim, (_, _, between) in enumerate(config):
        if between and x.shape[dim] > 1:
            x = spread_out(x, dim, between, number)
    edges = [size for low, high, _ in reversed(config) for size in (low, high)]
    return functional.pad(x, edges, value=number) if any(edges) else x


def spread_out(x: Tensor, dim: int, between: int, number: Any) -> Tensor:  # noqa: ANN401
    """Elements of one dimension with others between them."""
    n = x.shape[dim]
    last = x.unsqueeze(dim + 1)
    edges = [0, 0] * (last.dim() - dim - 2) + [0, between]
    wide = functional.pad(last, edges, value=number)
    flat = wide.reshape([*x.shape[:dim], n * (between + 1), *x.shape[dim + 1 :]])
    return flat.narrow(dim, 0, n + (n - 1) * between)


@rule("iota")
def iota(eqn: Equation, *_sizes: Tensor) -> Tensor:
    shape, dim = eqn.shape, eqn.params["dimension"]
    numbers = torch.arange(shape[dim], dtype=carrier(eqn.dtype))
    return numbers.reshape([-1 if d == dim else 1 for d in range(len(shape))]).expand(shape)


@rule("iota_2x32_shape")
def iota_2x32(eqn: Equation) -> list[Value]:
    """The places of an array counted in two words."""
    shape = eqn.shape
    if math.prod(shape) >= 1 << 31:
        raise JaxError(f"an array of {math.prod(shape)} random numbers is too large.")
    low = torch.arange(math.prod(shape), dtype=torch.int32).reshape(shape)
    return [torch.zeros_like(low), low]


@rule("empty", "empty2")
def empty(eqn: Equation) -> Tensor:
    return torch.zeros(eqn.shape, dtype=carrier(eqn.dtype))


@rule("select_n")
def select_n(eqn: Equation, which: Tensor, *cases: Value) -> Value:
    if which.dtype == torch.bool:
        if len(cases) == 1:
            return cases[0]
        return by_words(lambda a, b: torch.where(_like(which, a), b, a), *cases)
    chosen = cases[0]
    index = ordered(which, eqn.in_dtype)
    for number, case in enumerate(cases[1:], 1):
        is_it = index == ordered(torch.tensor(number, dtype=which.dtype), eqn.in_dtype)
        chosen = by_words(lambda a, b, m=is_it: torch.where(_like(m, a), b, a), chosen, case)
    return chosen


def _like(which: Tensor, x: Tensor) -> Tensor:
    """A scalar chooses whole arrays."""
    return which.expand(x.shape) if which.dim() == 0 else which


def key_words(x: Value) -> Tensor:
    """A key's words as a last dimension."""
    assert isinstance(x, Key), "operands of random primitives are keys"
    return torch.stack(tuple(x), -1)
