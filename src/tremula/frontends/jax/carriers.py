"""How values of JAX are held: arrays of every type as PyTorch tensors, random keys as two of them.

Tiles and PyTorch know little of unsigned integers. Those of 32 and 64 bits are held as the signed
integers of the same bits, whose sums, products and logic are the same; rules that see an order or a
size look at the array's own type. Those of 16 bits are held as 32-bit integers, masked after
every operation that may leave their range.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from torch import Tensor

from tremula.frontends.jax.errors import JaxError

_CARRIERS = {
    "bool": torch.bool,
    "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
    "uint8": torch.uint8, "uint16": torch.int32, "uint32": torch.int32, "uint64": torch.int64,
    "float16": torch.float16, "bfloat16": torch.bfloat16,
    "float32": torch.float32, "float64": torch.float64,
    "complex64": torch.complex64, "complex128": torch.complex128,
}  # fmt: skip
# Unsigned types whose carrier's sign bit is a bit of theirs.
_WRAPPED = {"uint32": (np.int32, 32), "uint64": (np.int64, 64)}


class Key(NamedTuple):
    """An array of random keys: its two words."""

    high: Tensor
    low: Tensor


Value = Tensor | Key


def is_key(aval: Any) -> bool:  # noqa: ANN401
    return jax.numpy.issubdtype(aval.dtype, jax.dtypes.prng_key)


def carrier(dtype: Any) -> torch.dtype:  # noqa: ANN401
    """The PyTorch type that holds an array of this type."""
    name = np.dtype(dtype).name
    if name not in _CARRIERS:
        raise JaxError(
            f"arrays of type {name} cannot be held.", hint=f"use one of {', '.join(_CARRIERS)}"
        )
    return _CARRIERS[name]


def is_wrapped(dtype: Any) -> bool:  # noqa: ANN401
    """Whether the type is unsigned and its carrier signed, with the same bits."""
    return np.dtype(dtype).name in _WRAPPED


def n_bits(dtype: Any) -> int:  # noqa: ANN401
    return np.dtype(dtype).itemsize * 8


def ordered(x: Tensor, dtype: Any) -> Tensor:  # noqa: ANN401
    """Signed integers in the order of the unsigned ones; its own inverse. Others as they are."""
    return x ^ torch.iinfo(x.dtype).min if is_wrapped(dtype) else x


def in_range(x: Tensor, dtype: Any) -> Tensor:  # noqa: ANN401
    """What is left of an integer result in a type that is narrower than its carrier."""
    return x & 0xFFFF if np.dtype(dtype).name == "uint16" else x


def from_array(array: Any, aval: Any) -> Value:  # noqa: ANN401
    """An array of JAX or NumPy as it is held; memory is shared where it can be."""
    if is_key(aval):
        data = from_array(np.asarray(jax.random.key_data(array)), np.zeros(0, np.uint32))
        assert isinstance(data, Tensor), "key data are plain integers"
        if data.shape[-1:] != (2,):
            raise JaxError(
                f"random keys of {data.shape[-1]} words cannot be used.",
                hint='use threefry2x32, the default: jax.random.key(seed, impl="threefry2x32")',
            )
        return Key(data[..., 0].contiguous(), data[..., 1].contiguous())
    return _held(np.asarray(array))


def _held(values: np.ndarray) -> Tensor:
    name = values.dtype.name
    carrier(values.dtype)  # refuses others
    if name in _WRAPPED:
        values = values.view(_WRAPPED[name][0])
    elif name == "uint16":
        values = values.astype(np.int32)
    elif name == "bfloat16":
        return torch.from_numpy(_plain(values.view(np.int16))).view(torch.bfloat16)
    return torch.from_numpy(_plain(values))


def _plain(values: np.ndarray) -> np.ndarray:
    """Memory that PyTorch may hold: JAX's arrays are read-only."""
    return values if values.flags.writeable and values.flags.c_contiguous else values.copy()


def to_array(value: Value, aval: Any) -> Any:  # noqa: ANN401
    """The array of JAX that a held value is."""
    if isinstance(value, Key):
        data = np.stack([np.asarray(part).view(np.uint32) for part in value], axis=-1)
        return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=aval.dtype._impl)
    name = np.dtype(aval.dtype).name
    if name == "bfloat16":
        bits = value.to(torch.bfloat16).view(torch.int16)  # tiles hold wider ones
        return jax.numpy.asarray(bits.numpy().view(aval.dtype))
    values = value.numpy()
    if name in _WRAPPED:
        values = values.view(aval.dtype)
    elif name == "uint16":
        values = values.astype(np.uint16)
    return jax.numpy.asarray(values)


def parts_of(values: list[Value]) -> list[Tensor]:
    """All tensors of some values, a key's words after each other."""
    return [part for value in values for part in (value if isinstance(value, Key) else (value,))]


def of_parts(parts: list[Tensor], avals: list[Any]) -> list[Value]:
    """The inverse of `parts_of`."""
    left = iter(parts)
    return [Key(next(left), next(left)) if is_key(aval) else next(left) for aval in avals]


def by_words(function: Callable[..., Tensor], *values: Value, **params: Any) -> Value:  # noqa: ANN401
    """A function that only moves elements, of arrays or of the words of keys."""
    if not any(isinstance(value, Key) for value in values):
        return function(*values, **params)
    words = [
        function(*(v[i] if isinstance(v, Key) else v for v in values), **params) for i in range(2)
    ]
    return Key(*words)
