"""How values of JAX are held: arrays of every type as PyTorch tensors, random keys as two of them.

Tiles and PyTorch know little of unsigned integers. Those of 32 and 64 bits are held as the signed
integers of the same bits, whose sums, products and logic are the same; rules that see an order or a
size look at the array's own type. Those of 16 bits are held as 32-bit integers, masked after
every operation that may leave their range.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from tremula.frontends.jax.errors import JaxError

_CARRIERS = {
    np.dtype(name): carrier
    for name, carrier in {
        "bool": torch.bool,
        "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
        "uint8": torch.uint8, "uint16": torch.int32, "uint32": torch.int32, "uint64": torch.int64,
        "float16": torch.float16, jax.numpy.bfloat16: torch.bfloat16,
        "float32": torch.float32, "float64": torch.float64,
        "complex64": torch.complex64, "complex128": torch.complex128,
    }.items()
}  # fmt: skip
_BFLOAT16, _UINT16 = np.dtype(jax.numpy.bfloat16), np.dtype("uint16")
# Unsigned types whose carrier's sign bit is a bit of theirs.
_WRAPPED = {np.dtype("uint32"): np.dtype("int32"), np.dtype("uint64"): np.dtype("int64")}
_SHARED = frozenset(_CARRIERS) - {*_WRAPPED, _BFLOAT16, _UINT16}  # the same bits in PyTorch


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


def carrier(dtype: Any) -> torch.dtype:  # noqa: ANN401
    """The PyTorch type that holds an array of this type."""
    result = _CARRIERS.get(np.dtype(dtype))
    if result is None:
        known = ", ".join(dtype.name for dtype in _CARRIERS)
        raise JaxError(
            f"arrays of type {np.dtype(dtype).name} cannot be held.", hint=f"use one of {known}"
        )
    return result


def is_wrapped(dtype: Any) -> bool:  # noqa: ANN401
    """Whether the type is unsigned and its carrier signed, with the same bits."""
    return np.dtype(dtype) in _WRAPPED


def n_bits(dtype: Any) -> int:  # noqa: ANN401
    return np.dtype(dtype).itemsize * 8


def ordered(x: Tensor, dtype: Any) -> Tensor:  # noqa: ANN401
    """Signed integers in the order of the unsigned ones; its own inverse. Others as they are."""
    return x ^ torch.iinfo(x.dtype).min if is_wrapped(dtype) else x


def in_range(x: Tensor, dtype: Any) -> Tensor:  # noqa: ANN401
    """What is left of an integer result in a type that is narrower than its carrier."""
    return x & 0xFFFF if np.dtype(dtype) == _UINT16 else x


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


def from_argument(array: Any, aval: Any) -> Value:  # noqa: ANN401
    """The same for a program's argument: it only reads the memory, which may be JAX's own."""
    if isinstance(array, jax.Array) and aval.dtype in _SHARED and _is_here(array):
        return from_dlpack(array.__dlpack__())
    return from_array(array, aval)


def _is_here(array: jax.Array) -> bool:
    """Whether an array is in one piece in this computer's memory."""
    devices = array.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def _held(values: np.ndarray) -> Tensor:
    dtype = values.dtype
    carrier(dtype)  # refuses others
    if dtype in _WRAPPED:
        values = values.view(_WRAPPED[dtype])
    elif dtype == _UINT16:
        values = values.astype(np.int32)
    elif dtype == _BFLOAT16:
        return torch.from_numpy(_plain(values.view(np.int16))).view(torch.bfloat16)
    return torch.from_numpy(_plain(values))


def _plain(values: np.ndarray) -> np.ndarray:
    """Memory that PyTorch may hold: JAX's arrays are read-only."""
    return values if values.flags.writeable and values.flags.c_contiguous else values.copy()


def to_arrays(values: list[Value], avals: list[Any]) -> list[Any]:
    """The arrays of JAX that held values are. Memory is shared, so nobody else may write it."""
    plain = [
        None if isinstance(value, Key) else _as_numpy(value, aval.dtype)
        for value, aval in zip(values, avals, strict=True)
    ]
    arrays = jax.device_put(plain)
    for i, (value, aval) in enumerate(zip(values, avals, strict=True)):
        if isinstance(value, Key):
            data = np.stack([np.asarray(part).view(np.uint32) for part in value], axis=-1)
            arrays[i] = jax.random.wrap_key_data(jax.numpy.asarray(data), impl=aval.dtype._impl)
    return arrays


def _as_numpy(value: Tensor, dtype: Any) -> np.ndarray:  # noqa: ANN401
    if dtype == _BFLOAT16:  # tiles hold wider ones
        return value.to(torch.bfloat16).view(torch.int16).numpy().view(dtype)
    if dtype in _WRAPPED:
        return value.numpy().view(dtype)
    return value.numpy().astype(dtype, copy=False)


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
