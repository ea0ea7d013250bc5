"""Complex numbers: sums, products, quotients, powers and elementary functions of elements."""

import math

import torch
from torch import Tensor

from tremula.ir.complex_pair import Operand, Pair, as_pair, parts
from tremula.ir.op_table import decomposes_complex

aten = torch.ops.aten
_NEAR = 0.5  # below it log1p is computed from what is added to 1


def _broadcast(re: Tensor, im: Tensor | float) -> Pair:
    """A pair whose parts have one shape."""
    if not isinstance(im, Tensor):
        im = torch.full_like(re, im)
    return Pair(*torch.broadcast_tensors(re, im))


# -- sums, products, quotients ---------------------------------------------------------------------


@decomposes_complex(aten.add.Tensor, aten.add.Scalar)
def add(a: Operand, b: Operand, alpha: complex = 1) -> Pair:
    """Parts are added."""
    (a_re, a_im), (b_re, b_im) = parts(a), parts(b if alpha == 1 else mul(b, alpha))
    return _broadcast(a_re + b_re, a_im + b_im)


@decomposes_complex(aten.sub.Tensor, aten.sub.Scalar)
def sub(a: Operand, b: Operand, alpha: complex = 1) -> Pair:
    """Parts are subtracted."""
    (a_re, a_im), (b_re, b_im) = parts(a), parts(b if alpha == 1 else mul(b, alpha))
    return _broadcast(a_re - b_re, a_im - b_im)


@decomposes_complex(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(a: Operand, b: Operand, alpha: complex = 1) -> Pair:
    """Parts are subtracted."""
    return sub(b, a, alpha)


@decomposes_complex(aten.mul.Tensor, aten.mul.Scalar)
def mul(a: Operand, b: Operand) -> Operand:
    """Four products, or two if an operand is real."""
    if not isinstance(a, Pair | Tensor) and not isinstance(b, Pair | Tensor):
        return a * b
    if _is_real(a) or _is_real(b):
        real, other = (a, b) if _is_real(a) else (b, a)
        re, im = parts(other)
        factor = parts(real)[0]
        return _broadcast(re * factor, im * factor)
    (a_re, a_im), (b_re, b_im) = parts(a), parts(b)
    return _broadcast(a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re)


def _is_real(value: Operand) -> bool:
    return isinstance(value, Tensor) or (not isinstance(value, Pair) and value.imag == 0)


@decomposes_complex(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor)
def div(a: Operand, b: Operand) -> Pair:
    """Smith's method: smaller over larger part of the divisor, so that nothing overflows."""
    if _is_real(b):
        (re, im), divisor = parts(a), parts(b)[0]
        return _broadcast(re / divisor, im / divisor)
    (a_re, a_im), (b_re, b_im) = parts(a), _tensors(b, a)
    is_wide = b_re.abs() >= b_im.abs()
    ratio = torch.where(is_wide, b_im, b_re) / torch.where(is_wide, b_re, b_im)
    length = torch.where(is_wide, b_re + b_im * ratio, b_im + b_re * ratio)
    re = torch.where(is_wide, a_re + a_im * ratio, a_re * ratio + a_im) / length
    im = torch.where(is_wide, a_im - a_re * ratio, a_im * ratio - a_re) / length
    return _broadcast(re, im)


def _tensors(value: Operand, like: Operand) -> tuple[Tensor, Tensor]:
    """The parts of a number as tensors of the other operand's type."""
    re, im = parts(value)
    if isinstance(re, Tensor):
        pair = as_pair(value)  # pyright: ignore[reportArgumentType] - not a number
        return pair.re, pair.im
    dtype = like.dtype  # pyright: ignore[reportAttributeAccessIssue] - the other is a tensor
    return torch.full([], re, dtype=dtype), torch.full([], im, dtype=dtype)


@decomposes_complex(aten.reciprocal.default)
def reciprocal(x: Pair) -> Pair:
    """1 over the number."""
    return div(1, x)


@decomposes_complex(aten.square.default)
def square(x: Pair) -> Operand:
    """The number times itself."""
    return mul(x, x)


@decomposes_complex(aten.addcmul.default)
def addcmul(x: Operand, a: Operand, b: Operand, *, value: complex = 1) -> Pair:
    """A product added."""
    return add(x, mul(a, b), value)


@decomposes_complex(aten.addcdiv.default)
def addcdiv(x: Operand, a: Operand, b: Operand, *, value: complex = 1) -> Pair:
    """A quotient added."""
    return add(x, div(a, b), value)


@decomposes_complex(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(a: Operand, b: Operand, weight: Operand) -> Pair:
    """A + weight · (b - a)."""
    return add(a, mul(sub(b, a), weight))


# -- size and direction ----------------------------------------------------------------------------


def length(re: Tensor, im: Tensor) -> Tensor:
    """The larger part times a root between 1 and √2: squares of large numbers would overflow."""
    a, b = re.abs(), im.abs()
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    ratio = small / torch.where((large == 0) | torch.isinf(large), torch.ones_like(large), large)
    ratio = torch.where(torch.isinf(large), torch.zeros_like(ratio), ratio)
    return large * torch.sqrt(1 + ratio * ratio)


@decomposes_complex(aten.abs.default)
def abs_(x: Pair) -> Tensor:
    """The length of the number."""
    return length(x.re, x.im)


@decomposes_complex(aten.angle.default)
def angle(x: Pair) -> Tensor:
    """The arc tangent of both parts."""
    return torch.atan2(x.im, x.re)


@decomposes_complex(aten.sgn.default, aten.sign.default)
def sgn(x: Pair) -> Pair:
    """The number over its length; 0 has none."""
    size = length(x.re, x.im)
    divisor = torch.where(size == 0, torch.ones_like(size), size)
    return Pair(x.re / divisor, x.im / divisor)


# -- exponentials and logarithms -------------------------------------------------------------------


@decomposes_complex(aten.exp.default)
def exp(x: Pair) -> Pair:
    """The real part's exponential, turned by the imaginary part."""
    size = torch.exp(x.re)
    return Pair(size * torch.cos(x.im), size * torch.sin(x.im))


@decomposes_complex(aten.exp2.default)
def exp2(x: Pair) -> Pair:
    """As exp."""
    return exp(Pair(x.re * math.log(2), x.im * math.log(2)))


@decomposes_complex(aten.expm1.default)
def expm1(x: Pair) -> Pair:
    """Exp - 1, exact for small numbers: cos - 1 = -2·sin² of half the angle."""
    half = torch.sin(x.im * 0.5)
    grown = torch.expm1(x.re)
    return Pair(grown * torch.cos(x.im) - 2 * half * half, (grown + 1) * torch.sin(x.im))


@decomposes_complex(aten.log.default)
def log(x: Pair) -> Pair:
    """The logarithm of the length, and the angle."""
    return Pair(torch.log(length(x.re, x.im)), torch.atan2(x.im, x.re))


@decomposes_complex(aten.log2.default)
def log2(x: Pair) -> Pair:
    """The logarithm over log 2."""
    return _scaled(log(x), 1 / math.log(2))


@decomposes_complex(aten.log10.default)
def log10(x: Pair) -> Pair:
    """The logarithm over log 10."""
    return _scaled(log(x), 1 / math.log(10))


@decomposes_complex(aten.log1p.default)
def log1p(x: Pair) -> Pair:
    """Half of log1p of |1 + x|² - 1 = re·(2 + re) + im², exact for small numbers."""
    near = 0.5 * torch.log1p(x.re * (2 + x.re) + x.im * x.im)
    far = torch.log(length(1 + x.re, x.im))
    is_near = length(x.re, x.im) < _NEAR
    return Pair(torch.where(is_near, near, far), torch.atan2(x.im, 1 + x.re))


def _scaled(x: Pair, factor: float) -> Pair:
    return Pair(x.re * factor, x.im * factor)


def _turned(x: Pair) -> Pair:
    """I times the number."""
    return Pair(-x.im, x.re)


def _turned_back(x: Pair) -> Pair:
    return Pair(x.im, -x.re)


@decomposes_complex(aten.sqrt.default)
def sqrt(x: Pair) -> Pair:
    """The root of half the sum of length and real part gives one part, a quotient the other."""
    size = length(x.re, x.im)
    main = torch.sqrt((size + x.re.abs()) * 0.5)
    other = x.im.abs() / (2 * torch.where(main == 0, torch.ones_like(main), main))
    is_right = x.re >= 0
    re, im = torch.where(is_right, main, other), torch.where(is_right, other, main)
    return Pair(re, torch.copysign(im, x.im))


@decomposes_complex(aten.rsqrt.default)
def rsqrt(x: Pair) -> Pair:
    """1 over the root."""
    return div(1, sqrt(x))


_WHOLE_POWERS = {0.5: sqrt, 1.0: lambda x: x, 2.0: square, -1.0: reciprocal, -0.5: rsqrt}
_LARGEST_PRODUCT = 8


@decomposes_complex(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power(base: Operand, exponent: Operand) -> Operand:
    """Small whole powers as products, others as exp(exponent · log base); 0 stays 0."""
    if not isinstance(exponent, Pair | Tensor) and isinstance(base, Pair):
        known = _power_by_products(base, exponent)
        if known is not None:
            return known
    if not isinstance(base, Pair | Tensor):
        angle = complex(math.log(abs(base)), math.atan2(base.imag, base.real)) if base else None
        return exp(as_pair(mul(exponent, angle))) if angle else _zero_power(exponent)  # pyright: ignore[reportArgumentType]
    pair = as_pair(base)
    result = exp(as_pair(mul(exponent, log(pair))))  # pyright: ignore[reportArgumentType]
    is_zero = (pair.re == 0) & (pair.im == 0)
    if isinstance(exponent, Tensor | Pair):
        e_re, e_im = parts(exponent)
        one = is_zero & (e_re == 0) & (e_im == 0)
        return Pair(
            torch.where(one, 1.0, torch.where(is_zero, 0.0, result.re)),
            torch.where(is_zero, 0.0, result.im),
        )
    return Pair(torch.where(is_zero, 0.0, result.re), torch.where(is_zero, 0.0, result.im))


def _zero_power(exponent: Operand) -> Pair:
    re, im = parts(exponent)
    is_one = (re == 0) & (im == 0)
    one = torch.where(is_one, 1.0, 0.0)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return Pair(one, torch.zeros_like(one))


def _power_by_products(base: Pair, exponent: complex) -> Operand | None:
    if exponent == 0:
        return Pair(torch.ones_like(base.re), torch.zeros_like(base.im))
    if exponent.imag == 0 and exponent.real in _WHOLE_POWERS:
        return _WHOLE_POWERS[exponent.real](base)
    if exponent.imag == 0 and 2 < exponent.real <= _LARGEST_PRODUCT and exponent.real % 1 == 0:
        result: Operand = base
        for _ in range(int(exponent.real) - 1):
            result = mul(result, base)
        return result
    return None


# -- circular and hyperbolic functions -------------------------------------------------------------


@decomposes_complex(aten.sin.default)
def sin(x: Pair) -> Pair:
    """Products of the real functions of both parts."""
    return Pair(torch.sin(x.re) * torch.cosh(x.im), torch.cos(x.re) * torch.sinh(x.im))


@decomposes_complex(aten.cos.default)
def cos(x: Pair) -> Pair:
    """Products of the real functions of both parts."""
    return Pair(torch.cos(x.re) * torch.cosh(x.im), -torch.sin(x.re) * torch.sinh(x.im))


@decomposes_complex(aten.sinh.default)
def sinh(x: Pair) -> Pair:
    """Products of the real functions of both parts."""
    return Pair(torch.sinh(x.re) * torch.cos(x.im), torch.cosh(x.re) * torch.sin(x.im))


@decomposes_complex(aten.cosh.default)
def cosh(x: Pair) -> Pair:
    """Products of the real functions of both parts."""
    return Pair(torch.cosh(x.re) * torch.cos(x.im), torch.sinh(x.re) * torch.sin(x.im))


_TANH_IS_ONE = 20.0  # beyond it, in float


@decomposes_complex(aten.tanh.default)
def tanh(x: Pair) -> Pair:
    """(sinh 2re, sin 2im) over cosh 2re + cos 2im; the real part is clamped where it is ±1."""
    re = x.re.clamp(-_TANH_IS_ONE, _TANH_IS_ONE)
    t, cos_im, sin_im = torch.sinh(re), torch.cos(x.im), torch.sin(x.im)
    divisor = cos_im * cos_im + t * t
    return Pair(t * torch.cosh(re) / divisor, sin_im * cos_im / divisor)


@decomposes_complex(aten.tan.default)
def tan(x: Pair) -> Pair:
    """-i · tanh(i·x)."""
    return _turned_back(tanh(_turned(x)))


@decomposes_complex(aten.asinh.default)
def asinh(x: Pair) -> Pair:
    """From the roots of 1 ± i·x, as Kahan's."""
    return _turned_back(asin(_turned(x)))


@decomposes_complex(aten.asin.default)
def asin(x: Pair) -> Pair:
    """Kahan's: from the roots of 1 - x and 1 + x."""
    below, above = sqrt(Pair(1 - x.re, -x.im)), sqrt(Pair(1 + x.re, x.im))
    re = torch.atan2(x.re, below.re * above.re - below.im * above.im)
    im = torch.asinh(below.re * above.im - below.im * above.re)
    return Pair(re, im)


@decomposes_complex(aten.acos.default)
def acos(x: Pair) -> Pair:
    """Kahan's: from the roots of 1 - x and 1 + x."""
    below, above = sqrt(Pair(1 - x.re, -x.im)), sqrt(Pair(1 + x.re, x.im))
    re = 2 * torch.atan2(below.re, above.re)
    im = torch.asinh(above.re * below.im - above.im * below.re)
    return Pair(re, im)


@decomposes_complex(aten.acosh.default)
def acosh(x: Pair) -> Pair:
    """Kahan's: from the roots of x - 1 and x + 1."""
    below, above = sqrt(Pair(x.re - 1, x.im)), sqrt(Pair(x.re + 1, x.im))
    re = torch.asinh(below.re * above.re + below.im * above.im)
    return Pair(re, 2 * torch.atan2(below.im, above.re))


@decomposes_complex(aten.atanh.default)
def atanh(x: Pair) -> Pair:
    """Half the logarithm of (1 + x) / (1 - x), its parts from real functions."""
    square_im = x.im * x.im
    re = 0.25 * torch.log1p(4 * x.re / ((1 - x.re) * (1 - x.re) + square_im))
    im = 0.5 * torch.atan2(2 * x.im, (1 - x.re) * (1 + x.re) - square_im)
    return Pair(re, im)


@decomposes_complex(aten.atan.default)
def atan(x: Pair) -> Pair:
    """-i · atanh(i·x)."""
    return _turned_back(atanh(_turned(x)))


@decomposes_complex(aten.sigmoid.default)
def sigmoid(x: Pair) -> Pair:
    """1 / (1 + exp(-x)), as half of 1 + tanh of half the number."""
    half = tanh(Pair(x.re * 0.5, x.im * 0.5))
    return Pair(0.5 + half.re * 0.5, half.im * 0.5)


@decomposes_complex(aten.silu.default)
def silu(x: Pair) -> Operand:
    """The number times its sigmoid."""
    return mul(x, sigmoid(x))


@decomposes_complex(aten.sinc.default)
def sinc(x: Pair) -> Pair:
    """Sin πx / πx; 1 at 0."""
    turned = _scaled(x, math.pi)
    is_zero = (x.re == 0) & (x.im == 0)
    divisor = Pair(torch.where(is_zero, 1.0, turned.re), turned.im)
    result = div(sin(turned), divisor)
    return Pair(torch.where(is_zero, 1.0, result.re), torch.where(is_zero, 0.0, result.im))
