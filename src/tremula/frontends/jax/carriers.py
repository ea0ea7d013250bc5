"""How values of JAX are represented: arrays of every type as tensors, random keys as two of them.

Types are rows of the table that front ends share, held in their carriers: unsigned integers of 32
and 64 bits as the signed integers of the same bits, so rules that see an order or a size look at
the array's own type; those of 16 bits as 32-bit integers, masked after every operation that may
leave their range.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from tremula.frontends.jax.errors import JaxError
from tremula.frontends.shared import element_types
from tremula.frontends.shared.element_types import ELEMENT_TYPES, ElementType

_ROWS = {row.numpy_type: row for row in ELEMENT_TYPES.values() if row.is_common}
_SHARED = {dtype for dtype, row in _ROWS.items() if row.is_shared}


class Key(NamedTuple):
    """An array of random keys: its two words."""

    high: Tensor
    low: Tensor


Value = Tensor | Key


def is_key(aval: Any) -> bool:  # noqa: ANN401
    return _is_key_type(aval.dtype)


@cache
def _is_key_type(dtype: Any) -> bool:  # noqa: ANN401
    return jax.numpy.issubdtype(dtype, jax.dtypes.prng_key)


def carrier(dtype: DTypeLike) -> torch.dtype:
    """The PyTorch type that holds an array of this type."""
    return _row(dtype).carrier


def _row(dtype: DTypeLike) -> ElementType:
    row = _ROWS.get(np.dtype(dtype))
    if row is None:
        known = ", ".join(dtype.name for dtype in _ROWS)
        raise JaxError(
            f"arrays of type {np.dtype(dtype).name} cannot be represented.",
            hint=f"use one of {known}",
        )
    return row


def is_wrapped(dtype: DTypeLike) -> bool:
    """Whether the type is unsigned and its carrier signed, with the same bits."""
    row = _ROWS.get(np.dtype(dtype))
    return row is not None and row.is_wrapped


def n_bits(dtype: DTypeLike) -> int:
    return np.dtype(dtype).itemsize * 8


def ordered(x: Tensor, dtype: DTypeLike) -> Tensor:
    """Signed integers in the order of the unsigned ones; its own inverse. Others as they are."""
    return element_types.ordered(x, _row(dtype)) if is_wrapped(dtype) else x


def in_range(x: Tensor, dtype: DTypeLike) -> Tensor:
    """What is left of an integer result in a type that is narrower than its carrier."""
    row = _ROWS.get(np.dtype(dtype))
    return element_types.in_range(x, row) if row is not None and row.is_masked else x


def from_array(array: Any, aval: Any) -> Value:  # noqa: ANN401
    """An array of JAX or NumPy as a tensor, which shares its memory where possible."""
    if is_key(aval):
        data = from_array(np.asarray(jax.random.key_data(array)), np.zeros(0, np.uint32))
        assert isinstance(data, Tensor), "key data are plain integers"
        if data.shape[-1:] != (2,):
            raise JaxError(
                f"random keys of {data.shape[-1]} words cannot be used.",
                hint='use threefry2x32, the default: jax.random.key(seed, impl="threefry2x32")',
            )
        return Key(data[..., 0].contiguous(), data[..., 1].contiguous())
    values = np.asarray(array)
    return element_types.to_carrier(values, _row(values.dtype))


def from_argument(array: Any, aval: Any) -> Value:  # noqa: ANN401
    """A program's argument as a tensor. Programs only read it, so it may be JAX's memory."""
    if isinstance(array, jax.Array) and aval.dtype in _SHARED and _is_here(array):
        return from_dlpack(array.__dlpack__())
    return from_array(array, aval)


def _is_here(array: jax.Array) -> bool:
    """Whether an array is in one piece in this computer's memory."""
    devices = array.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def to_arrays(
    values: list[Value], avals: list[Any], places: Sequence[Any] | None = None
) -> list[Any]:
    """Values as arrays of JAX, on its default device or where `places` says.

    Memory is shared: the values must not change.
    """
    plain = [
        None if isinstance(value, Key) else element_types.from_carrier(value, _row(aval.dtype))
        for value, aval in zip(values, avals, strict=True)
    ]
    arrays = jax.device_put(plain, None if places is None else list(places))
    for i, (value, aval) in enumerate(zip(values, avals, strict=True)):
        if isinstance(value, Key):
            data = np.stack([np.asarray(part).view(np.uint32) for part in value], axis=-1)
            words = jax.device_put(data, None if places is None else places[i])
            arrays[i] = jax.random.wrap_key_data(words, impl=aval.dtype._impl)
    return arrays


def parts_of(values: list[Value]) -> list[Tensor]:
    """All tensors of some values, a key's words after each other."""
    return [part for value in values for part in (value if isinstance(value, Key) else (value,))]


def of_parts(parts: list[Tensor], avals: list[Any]) -> list[Value]:
    """The inverse of `parts_of`."""
    left = iter(parts)
    return [Key(next(left), next(left)) if is_key(aval) else next(left) for aval in avals]


def by_words(function: Callable[..., Tensor], *values: Value, **params: object) -> Value:
    """A function that only moves elements, of arrays or of the words of keys."""
    if not any(isinstance(value, Key) for value in values):
        return function(*values, **params)
    words = [
        function(*(v[i] if isinstance(v, Key) else v for v in values), **params) for i in range(2)
    ]
    return Key(*words)
