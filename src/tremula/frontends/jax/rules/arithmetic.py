"""Arithmetic, element by element: floats, complex numbers, signed and unsigned integers."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from tremula.frontends.jax.carriers import carrier, in_range, is_wrapped, n_bits, ordered
from tremula.frontends.jax.evaluate import known_number
from tremula.frontends.jax.table import Equation, rule
from tremula.frontends.jax.unsigned import divided, halved

Operand = Tensor | int | float | bool  # a known scalar comes as a number


def tensor_of(value: Operand, other: Operand) -> Tensor:
    """An operand as a tensor of the other one's type."""
    if isinstance(value, Tensor):
        return value
    assert isinstance(other, Tensor), "one operand at least is a tensor"
    return torch.full((), value, dtype=other.dtype)


def _is_integer(dtype: DTypeLike) -> bool:
    return np.issubdtype(np.dtype(dtype), np.integer)


def _is_signed(dtype: DTypeLike) -> bool:
    return np.issubdtype(np.dtype(dtype), np.signedinteger)


# -- two operands ----------------------------------------------------------------------------------


@rule("add", "add_any", takes_numbers=True)
def add(eqn: Equation, x: Operand, y: Operand) -> Tensor:
    if eqn.dtype == bool:
        return tensor_of(x, y) | y
    return in_range(_sum(x, y), eqn.dtype)


def _sum(x: Operand, y: Operand) -> Tensor:
    return x + y if isinstance(x, Tensor) else torch.add(tensor_of(y, x), x)


@rule("sub", takes_numbers=True)
def sub(eqn: Equation, x: Operand, y: Operand) -> Tensor:
    if isinstance(x, Tensor):
        return in_range(x - y, eqn.dtype)
    return in_range(torch.rsub(tensor_of(y, x), x), eqn.dtype)


@rule("mul", takes_numbers=True)
def mul(eqn: Equation, x: Operand, y: Operand) -> Tensor:
    if eqn.dtype == bool:
        return tensor_of(x, y) & y
    product = x * y if isinstance(x, Tensor) else tensor_of(y, x) * x
    return in_range(product, eqn.dtype)


@rule("div", takes_numbers=True)
def div(eqn: Equation, x: Operand, y: Operand) -> Tensor:
    if is_wrapped(eqn.dtype):
        return divided(tensor_of(x, y), tensor_of(y, x))[0]
    if _is_integer(eqn.dtype):
        return torch.div(tensor_of(x, y), y, rounding_mode="trunc")
    return x / y if isinstance(x, Tensor) else x / tensor_of(y, x)


@rule("rem", takes_numbers=True)
def rem(eqn: Equation, x: Operand, y: Operand) -> Tensor:
    """The remainder has the sign of what is divided."""
    if is_wrapped(eqn.dtype):
        return divided(tensor_of(x, y), tensor_of(y, x))[1]
    return torch.fmod(tensor_of(x, y), y)


@rule("max")
def maximum(eqn: Equation, x: Tensor, y: Tensor) -> Tensor:
    return _extreme(eqn, x, y, torch.maximum)


@rule("min")
def minimum(eqn: Equation, x: Tensor, y: Tensor) -> Tensor:
    return _extreme(eqn, x, y, torch.minimum)


def _extreme(eqn: Equation, x: Tensor, y: Tensor, choose: Callable) -> Tensor:
    x, y = torch.broadcast_tensors(x, y)
    if eqn.dtype == bool:
        return x | y if choose is torch.maximum else x & y
    return ordered(choose(ordered(x, eqn.dtype), ordered(y, eqn.dtype)), eqn.dtype)


@rule("clamp")
def clamp(eqn: Equation, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    return minimum(eqn, maximum(eqn, x, low), high)


@rule("pow", takes_numbers=True)
def power(_eqn: Equation, x: Operand, y: Operand) -> Tensor:
    if not isinstance(x, Tensor):
        return torch.pow(x, tensor_of(y, x))
    if isinstance(y, Tensor) and x.is_floating_point():
        return torch.pow(x, y.to(x.dtype))
    return torch.pow(x, y)


@rule("atan2")
def atan2(_eqn: Equation, x: Tensor, y: Tensor) -> Tensor:
    return torch.atan2(x, y)


@rule("nextafter")
def nextafter(_eqn: Equation, x: Tensor, y: Tensor) -> Tensor:
    return torch.nextafter(*torch.broadcast_tensors(x, y))


@rule("complex")
def complex_of(_eqn: Equation, real: Tensor, imaginary: Tensor) -> Tensor:
    return torch.complex(*torch.broadcast_tensors(real, imaginary))


# -- one operand -----------------------------------------------------------------------------------

_UNARY = {
    "acos": torch.acos, "acosh": torch.acosh, "asin": torch.asin, "asinh": torch.asinh,
    "atan": torch.atan, "atanh": torch.atanh, "ceil": torch.ceil, "conj": torch.conj_physical,
    "cos": torch.cos, "cosh": torch.cosh, "digamma": torch.digamma, "erf": torch.erf,
    "erf_inv": torch.erfinv, "erfc": torch.erfc, "exp": torch.exp, "exp2": torch.exp2,
    "expm1": torch.expm1, "floor": torch.floor, "imag": torch.imag,
    "lgamma": torch.lgamma, "log": torch.log, "log1p": torch.log1p, "logistic": torch.sigmoid,
    "real": torch.real, "rsqrt": torch.rsqrt, "sin": torch.sin, "sinh": torch.sinh,
    "sqrt": torch.sqrt, "tan": torch.tan, "tanh": torch.tanh,
    "bessel_i0e": torch.special.i0e, "bessel_i1e": torch.special.i1e,
}  # fmt: skip


def _enter_unary(name: str, function: Callable[[Tensor], Tensor]) -> None:
    @rule(name)
    def unary(_eqn: Equation, x: Tensor) -> Tensor:
        return function(x)


for _name, _function in _UNARY.items():
    _enter_unary(_name, _function)


@rule("neg")
def neg(eqn: Equation, x: Tensor) -> Tensor:
    return in_range(-x, eqn.dtype)


@rule("abs")
def absolute(eqn: Equation, x: Tensor) -> Tensor:
    return torch.abs(x) if not is_wrapped(eqn.in_dtype) else x


@rule("sign")
def sign(eqn: Equation, x: Tensor) -> Tensor:
    if is_wrapped(eqn.dtype):
        return (x != 0).to(x.dtype)
    if x.is_complex():
        return torch.sgn(x)
    if x.is_floating_point():  # JAX keeps the sign of zeros, and NaN
        return torch.where((x == 0) | torch.isnan(x), x, torch.sign(x))
    return torch.sign(x)


@rule("square")
def square(eqn: Equation, x: Tensor) -> Tensor:
    return in_range(x * x, eqn.dtype)


@rule("one_minus_square")
def one_minus_square(eqn: Equation, x: Tensor) -> Tensor:
    """As JAX computes it: no digits are lost where the square is near one."""
    return in_range((1 + x) * (1 - x), eqn.dtype)


@rule("integer_pow")
def integer_pow(eqn: Equation, x: Tensor) -> Tensor:
    """By repeated squares, as JAX does it: the same roundings."""
    exponent = eqn.params["y"]
    if exponent == 0:
        return torch.ones_like(x)
    left, base, product = abs(exponent), x, None
    while left:
        if left & 1:
            product = base if product is None else product * base
        left >>= 1
        base = base * base if left else base
    assert product is not None, "exponents above 0 have a bit"
    return in_range(product, eqn.dtype) if exponent > 0 else 1.0 / product


@rule("cbrt")
def cbrt(_eqn: Equation, x: Tensor) -> Tensor:
    """A power of the size, refined by a step of Newton's."""
    size = torch.abs(x)
    guess = torch.pow(size, 1.0 / 3.0)
    better = guess - (guess * guess * guess - size) / (3.0 * guess * guess)
    usable = (size > 0) & torch.isfinite(better)
    return torch.where(usable, better, guess) * torch.where(x < 0, -1.0, 1.0).to(x.dtype)


@rule("round")
def rounded(eqn: Equation, x: Tensor) -> Tensor:
    if int(eqn.params["rounding_method"]) == 1:  # half to even
        return torch.round(x)
    away = torch.floor(torch.abs(x) + 0.5)
    exact = torch.where(torch.abs(x) == 0.49999997, torch.zeros_like(x), away)
    return torch.copysign(torch.where(torch.isfinite(x), exact, torch.abs(x)), x)


@rule("is_finite")
def is_finite(_eqn: Equation, x: Tensor) -> Tensor:
    return torch.isfinite(x)


# -- bits ------------------------------------------------------------------------------------------


@rule("and", takes_numbers=True)
def bitwise_and(_eqn: Equation, x: Operand, y: Operand) -> Tensor:
    return tensor_of(x, y) & y


@rule("or", takes_numbers=True)
def bitwise_or(_eqn: Equation, x: Operand, y: Operand) -> Tensor:
    return tensor_of(x, y) | y


@rule("xor", takes_numbers=True)
def bitwise_xor(_eqn: Equation, x: Operand, y: Operand) -> Tensor:
    return tensor_of(x, y) ^ y


@rule("not")
def bitwise_not(eqn: Equation, x: Tensor) -> Tensor:
    return in_range(~x, eqn.dtype)


@rule("shift_left", takes_numbers=True)
def shift_left(eqn: Equation, x: Tensor, by: Operand) -> Tensor:
    """Shifting all bits out leaves 0; processors would shift by less instead."""
    width = n_bits(eqn.dtype)
    number, x = known_number(by), tensor_of(x, by)
    if number is not None:
        return in_range(x << int(number), eqn.dtype) if 0 <= number < width else x * 0
    assert isinstance(by, Tensor), "numbers are known"
    inside = (by >= 0) & (by < width)
    shifted = in_range(x << torch.where(inside, by, torch.zeros_like(by)), eqn.dtype)
    return torch.where(inside, shifted, torch.zeros_like(shifted))


@rule("shift_right_logical", takes_numbers=True)
def shift_right_logical(eqn: Equation, x: Tensor, by: Operand) -> Tensor:
    """Zeros come in from the left, in signed types too."""
    width = n_bits(eqn.dtype)
    number, x = known_number(by), tensor_of(x, by)
    if number is not None:
        return halved(x, int(number), width) if 0 <= number < width else x * 0
    assert isinstance(by, Tensor), "numbers are known"
    inside = (by >= 0) & (by < width)
    by = torch.where(inside, by, torch.zeros_like(by))
    shifted = halved(x, by, width)
    return torch.where(inside, shifted, torch.zeros_like(shifted))


@rule("shift_right_arithmetic")
def shift_right_arithmetic(eqn: Equation, x: Tensor, by: Tensor) -> Tensor:
    return x >> torch.clamp(by, 0, n_bits(eqn.dtype) - 1)


@rule("population_count")
def population_count(eqn: Equation, x: Tensor) -> Tensor:
    """Sums of bits in pairs, fours, eights …"""
    width = n_bits(eqn.dtype)
    x = x.to(torch.int32) if width < 32 else x
    x = x & ((1 << width) - 1) if width < 32 else x
    for shift in (1, 2, 4, 8, 16, 32):
        if shift >= width:
            break
        mask = sum(1 << i for i in range(width) if not (i // shift) & 1)
        mask = mask - (1 << 64) if mask >= 1 << 63 else mask
        x = (x & mask) + (halved(x, shift, max(width, 32)) & mask)
    return x.to(carrier(eqn.dtype))


@rule("clz")
def count_leading_zeros(eqn: Equation, x: Tensor) -> Tensor:
    """Ones are spread to the right; those that are left are counted."""
    width = n_bits(eqn.dtype)
    x = x.to(torch.int32) & ((1 << width) - 1) if width < 32 else x
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < width:
            x = x | halved(x, shift, max(width, 32))
    return (width - population_count(eqn, x)).to(carrier(eqn.dtype))


# -- comparisons -----------------------------------------------------------------------------------

_COMPARISONS = {
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
}  # fmt: skip


def _enter_comparison(name: str, function: Callable) -> None:
    @rule(name, takes_numbers=True)
    def compare(eqn: Equation, x: Operand, y: Operand) -> Tensor:
        if is_wrapped(eqn.in_dtype):
            x, y = (ordered(tensor_of(v, o), eqn.in_dtype) for v, o in ((x, y), (y, x)))
        return function(tensor_of(x, y), y)


for _name, _function in _COMPARISONS.items():
    _enter_comparison(_name, _function)


def _total_order(x: Tensor) -> Tensor:
    """Floats as integers in the order -NaN, -inf, …, -0, 0, …, inf, NaN."""
    bits = x.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize])
    return torch.where(bits < 0, torch.iinfo(bits.dtype).max ^ bits, bits)


def _enter_total(name: str, function: Callable) -> None:
    @rule(name)
    def compare(eqn: Equation, x: Tensor, y: Tensor) -> Tensor:
        if x.is_floating_point():
            return function(_total_order(x), _total_order(y))
        return function(ordered(x, eqn.in_dtype), ordered(y, eqn.in_dtype))


for _name in ("eq", "lt", "le"):
    _enter_total(f"{_name}_to", _COMPARISONS[_name])
