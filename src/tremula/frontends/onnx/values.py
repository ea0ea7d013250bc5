"""Casts between element types: values that are exact, whatever type holds them."""

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor

from tremula.frontends.onnx.element_types import STRING, OnnxType, element_type
from tremula.frontends.onnx.errors import UnsupportedOnnx

_WHOLE_BITS = {"UINT4": (4, False), "INT4": (4, True), "UINT2": (2, False), "INT2": (2, True)}
# Small floats: the least exponent, bits of the fraction, and the largest number.
_SMALL_FLOATS = {"FLOAT4E2M1": (0, 1, 6.0), "FLOAT6E2M3": (0, 3, 7.5), "FLOAT6E3M2": (-2, 2, 28.0)}
_FLOAT8_LARGEST = {
    "FLOAT8E4M3FN": 448.0,
    "FLOAT8E4M3FNUZ": 240.0,
    "FLOAT8E5M2": 57344.0,
    "FLOAT8E5M2FNUZ": 57344.0,
}


def parse_type_name(name: str) -> int:
    """The number of an element type that a text names, as the first operator sets did."""
    if name.upper() not in TensorProto.DataType.keys():  # noqa: SIM118 - no dict
        raise UnsupportedOnnx(f"{name!r} is not an element type of ONNX.")
    return TensorProto.DataType.Value(name.upper())


def cast_to(x: Tensor, number: int, *, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """A tensor, or an array of strings, as another element type."""
    if not isinstance(x, Tensor):
        return x if number == STRING else _from_strings(x, element_type(number))
    if number == STRING:
        return _as_strings(x)
    kind = element_type(number)
    if x.is_floating_point() and x.dtype.itemsize == 1:
        x = x.to(torch.float32)
    if kind.name in _WHOLE_BITS:
        return _wrapped(x, *_WHOLE_BITS[kind.name]).to(kind.tensor_type)
    if kind.name in _SMALL_FLOATS:
        return rounded_float(x.to(torch.float32), *_SMALL_FLOATS[kind.name])
    if kind.name in _FLOAT8_LARGEST:
        return _as_float8(x, kind, saturate=saturate)
    if kind.name == "FLOAT8E8M0":
        return _as_power(x.to(torch.float32), round_mode)
    return x.to(kind.tensor_type)


def _wrapped(x: Tensor, n_bits: int, is_signed: bool) -> Tensor:
    """The lowest bits of whole numbers."""
    whole, n = x.to(torch.int64), 1 << n_bits
    return (whole + n // 2) % n - n // 2 if is_signed else whole % n


def rounded_float(x: Tensor, least: int, n_bits: int, largest: float) -> Tensor:
    """The nearest numbers of a small floating-point type, ties to even; beyond it the largest."""
    _, exponent = torch.frexp(x)
    exponent = (exponent - 1).clamp(min=least)
    step = torch.ldexp(torch.ones_like(x), exponent - n_bits)
    return (torch.round(x / step) * step).clamp(-largest, largest)


def _as_float8(x: Tensor, kind: OnnxType, *, saturate: bool) -> Tensor:
    wide, largest = x.to(torch.float32), _FLOAT8_LARGEST[kind.name]
    if saturate:
        return wide.clamp(-largest, largest).to(kind.tensor_type)
    if kind.name == "FLOAT8E4M3FN":  # PyTorch saturates it; beyond half a step is none
        wide = torch.where(wide.abs() > 464, torch.nan, wide)
    return wide.to(kind.tensor_type)


def _as_power(x: Tensor, round_mode: str) -> Tensor:
    """Powers of two in 8 bits: the sign is lost."""
    fraction, exponent = torch.frexp(x.abs())  # fraction in [½, 1)
    is_exact = fraction == 0.5
    power = exponent - 1
    if round_mode == "up":
        power = torch.where(is_exact, power, power + 1)
    elif round_mode == "nearest":
        power = torch.where(fraction >= 0.75, power + 1, power)
    bits = torch.where(x == 0, 0, (power + 127).clamp(0, 254))
    bits = torch.where(torch.isnan(x) | torch.isinf(x), 255, bits)
    return bits.to(torch.uint8).view(torch.float8_e8m0fnu)


def _from_strings(x: np.ndarray, kind: OnnxType) -> Tensor:
    numbers = np.array([float(text) for text in x.reshape(-1)]).reshape(x.shape)
    if not kind.is_floating:
        numbers = np.array([int(float(text)) for text in x.reshape(-1)]).reshape(x.shape)
    return cast_to(torch.from_numpy(numbers), kind.number)


def _as_strings(x: Tensor) -> Tensor:
    """Numbers as texts; floats with the fewest digits that name them."""
    array = x.to(torch.float32).numpy() if x.dtype is torch.bfloat16 else x.detach().numpy()
    texts = [_text(value) for value in array.reshape(-1)]
    return np.array(texts, object).reshape(array.shape)  # pyright: ignore[reportReturnType]


def _text(value: np.generic) -> str:
    if not isinstance(value, np.floating):
        return str(value)
    special = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}
    return special.get(str(value), str(value))
